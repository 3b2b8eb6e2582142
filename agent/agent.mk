# SPDX-License-Identifier: Apache-2.0
# The agent for Cassandra: a class that stays in the server, the code that does the work, and the
# native markers. It is loaded into servers that may be older than this machine: Java 11.
AGENT         := $(BUILD)/agent
AGENT_FILES   := qjoule-agent.jar hooks.jar libqjoule_agent.so
JAVAC         := javac
JAVA_INCLUDES  = $(patsubst %/bin/javac,%/include,$(realpath $(shell command -v $(JAVAC))))
JAVAC_FLAGS   := -source 11 -target 11 -Xlint:all,-options -Werror
# The same classes give the same archive: in one order, with one date.
JAR           := jar --create --date=1980-02-01T00:00:00Z
CLASSES       := find . -type f -name '*.class' | LC_ALL=C sort
JNI_FLAGS     := -std=gnu11 -O2 -fPIC -shared -nostdlib -ffreestanding -fno-tree-loop-distribute-patterns -fcf-protection=none -fomit-frame-pointer -fno-stack-protector \
                 -fvisibility=hidden -Wall -Wextra -Werror -Wl,-z,relro,-z,now,-Bsymbolic

$(AGENT)/qjoule-agent.jar: $(wildcard agent/entry/qjoule/agent/*.java) agent/MANIFEST.MF | $(BUILD)/installed-test
	rm -rf $(AGENT)/entry && mkdir -p $(AGENT)/entry
	$(JAVAC) $(JAVAC_FLAGS) -d $(AGENT)/entry $(filter %.java,$^)
	cd $(AGENT)/entry && $(JAR) --file $(abspath $@) --manifest $(abspath agent/MANIFEST.MF) $$($(CLASSES))

$(AGENT)/hooks.jar: $(wildcard agent/cassandra/qjoule/agent/cassandra/*.java) $(shell find agent/stubs -name '*.java') $(AGENT)/qjoule-agent.jar
	rm -rf $(AGENT)/cassandra $(AGENT)/stubs && mkdir -p $(AGENT)/cassandra $(AGENT)/stubs
	$(JAVAC) $(JAVAC_FLAGS) -d $(AGENT)/stubs $(filter agent/stubs/%,$^)
	$(JAVAC) $(JAVAC_FLAGS) --add-exports java.base/jdk.internal.org.objectweb.asm=ALL-UNNAMED \
	    -cp $(AGENT)/entry:$(AGENT)/stubs -d $(AGENT)/cassandra $(filter agent/cassandra/%,$^)
	cd $(AGENT)/cassandra && $(JAR) --file $(abspath $@) $$($(CLASSES))

$(AGENT)/libqjoule_agent.so: agent/jni/marker.c | $(BUILD)/installed-test
	@mkdir -p $(@D)
	$(CC) $(JNI_FLAGS) -I$(JAVA_INCLUDES) -I$(JAVA_INCLUDES)/linux $< -o $@

$(VENV)/lib/qjoule/%: $(AGENT)/% $(VENV)/installed
	@mkdir -p $(@D)
	install -m 644 $< $@
