# SPDX-License-Identifier: Apache-2.0
# qjoule: joules per query. `make help` says what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-builtin-rules --jobs=$(shell nproc)

BUILD  := build
VENV   := .venv
PYTHON := /usr/bin/python3
CLANG  := clang
CC     := gcc

# Programs do not hold where they were built.
REPRODUCIBLE := -ffile-prefix-map=$(CURDIR)=.
# Whatever the compiler's defaults: at a random address, and no table of functions stays writable.
HARDENED := -fPIE -pie -Wl,-z,relro,-z,now

# bpftool links them in this order: a map is defined before an object that only declares it.
BPF_SOURCES  := bpf/core/maps.bpf.c $(sort $(filter-out bpf/core/maps.bpf.c,$(wildcard bpf/*/*.bpf.c)))
REGISTRY     := $(addprefix attribution/src/qjoule/servers/,registry.toml registry.py registry_header.py)
REGISTRY_HEADERS := $(addprefix $(BUILD)/bpf/,registry.h server_threads.h server_hooks.h)
SHAPES       := $(addprefix attribution/src/qjoule/shapes/,$(addsuffix .py,automaton rules tables transitions))
SHAPE_TABLES := $(BUILD)/bpf/shape_tables.h
BPF_HEADERS  := $(wildcard bpf/*.h bpf/*/*.h) $(REGISTRY_HEADERS) $(SHAPE_TABLES)
BPF_OBJECTS  := $(BPF_SOURCES:bpf/%.bpf.c=$(BUILD)/bpf/%.bpf.o)
BPF_ARCH     := $(shell uname -m | sed 's/x86_64/x86/; s/aarch64/arm64/')
BPF_FLAGS    := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) -Wall -Wextra \
                -Wno-unused-parameter -Werror -Ibpf -I$(BUILD)/bpf $(REPRODUCIBLE) \
                -idirafter /usr/include/$(shell uname -m)-linux-gnu # <asm/unistd.h>, on Debian
SKELETON     := $(BUILD)/bpf/qjoule.skel.h
# The same for early kernels: see bpf/core/state.bpf.h.
EARLY_OBJECTS  := $(BPF_SOURCES:bpf/%.bpf.c=$(BUILD)/bpf/%.early.o)
EARLY_SKELETON := $(BUILD)/bpf/qjoule_early.skel.h
SKELETONS      := $(SKELETON) $(EARLY_SKELETON)

# The version is in one place; those of the other distributions are held equal to it by a test.
VERSION        := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' attribution/src/qjoule/__init__.py)
TRACER_SOURCES := $(wildcard tracer/*.c tracer/energy/*.c)
TRACER_HEADERS := $(wildcard tracer/*.h tracer/energy/*.h) tracer/root/protocol.h
TRACER_FLAGS   := -std=gnu11 -g -O2 -fno-strict-aliasing -D_GNU_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong \
                  -Wall -Wextra -Werror -Ibpf -I$(BUILD)/bpf -Itracer -DQJ_VERSION='"$(VERSION)"' $(REPRODUCIBLE) \
                  $(HARDENED)
TRACER_LIBS    := -lbpf -lelf -lz -lseccomp -lzstd -lm
ROOT_LIBS      := -lbpf -lelf -lz
SANITIZE       := -fsanitize=address,undefined -fno-omit-frame-pointer -U_FORTIFY_SOURCE

ROOT_SOURCES := $(wildcard tracer/root/*.c)
ROOT_HEADERS := $(wildcard tracer/root/*.h) tracer/variant.h
# What answers a request is given all of it, and seldom needs all.
ROOT_FLAGS   := $(TRACER_FLAGS) -Wno-unused-parameter

LOAD_SOURCES := $(wildcard tracer/load/*.c)
LOAD_FLAGS   := -std=gnu11 -g -O3 -D_GNU_SOURCE -fstack-protector-strong -Wall -Wextra -Werror -pthread $(REPRODUCIBLE) \
                $(HARDENED)

EXTENSION_SOURCES := $(wildcard attribution/sweep/*.c attribution/sweep/*.h attribution/shapes/*.c attribution/shapes/*.h)

PY_SOURCES := conftest.py attribution/src drivers/src studies fleet tests bench examples packaging/tools packaging/monitoring
C_SOURCES  := $(wildcard agent/jni/*.c bpf/*.h bpf/*/*.c bpf/*/*.h tracer/*.c tracer/*.h tracer/energy/*.c tracer/energy/*.h tracer/root/*.c tracer/root/*.h tracer/load/*.c tracer/load/*.h bench/hooks/*.c bench/overhead/*.c examples/*/*.c examples/*/*.h $(shell find tests -name '*.c' -o -name '*.h' -o -name '*.cpp')) $(EXTENSION_SOURCES)

# What most people want, in this order.
FIRST := demo build test test-all lint
LIST   = grep -hE '^[a-z-]+:.*\#\#' $(MAKEFILE_LIST) | sed -E 's/:.*\#\# /\t/' | expand -t 18

.PHONY: help
help: ## This list
	@for target in $(FIRST); do $(LIST) | grep -E "^$$target "; done
	@echo
	@$(LIST) | grep -vE "^($(subst $() $(),|,$(FIRST))) "

# ---- what a fresh machine needs ----------------------------------------------------------------

.PHONY: install
install: $(BUILD)/installed-test ## Debian packages (build, servers for demo and tests)
$(BUILD)/installed: packaging/debian-packages.txt packaging/install
	packaging/install $<
	@mkdir -p $(@D) && touch $@

$(BUILD)/installed-test: packaging/debian-packages-test.txt packaging/install | $(BUILD)/installed
	packaging/install $<
	@touch $@

PIP := $(VENV)/bin/pip install --quiet --disable-pip-version-check
# Python would print a traceback for a Ctrl-C while it starts: `qjoule.start` unblocks it.
IMMUNE := sed -i '1s|^\#!\(/[^ ]*\)$$|\#!/usr/bin/env -S --block-signal=INT \1|' $(VENV)/bin/qjoule

# What the demo needs. The parts of the package that are C are built by pip: attribution/setup.py.
$(VENV)/installed: $(wildcard */pyproject.toml) attribution/setup.py $(EXTENSION_SOURCES) | $(BUILD)/installed
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e attribution -e drivers -e studies
	$(IMMUNE)
	$(VENV)/bin/python -m compileall -q attribution/src drivers/src studies/src
	@touch $@

$(VENV)/installed-test: $(VENV)/installed | $(BUILD)/installed-test
	$(PIP) -e 'attribution[test]' -e 'drivers[test]' -e 'studies[test]' -e 'fleet[test]'
	$(IMMUNE)
	@touch $@

include agent/agent.mk
include packaging/packages.mk

# ---- build -------------------------------------------------------------------------------------

# Most of it runs as another user than root, whatever root's umask was when this was checked out.
PROGRAMS := $(VENV) $(BUILD) agent attribution drivers studies fleet tests examples
READABLE = [ "$$(id -u)" != 0 ] || { chmod go+rX . && chmod -R go+rX $(wildcard $(PROGRAMS)); }
# For what traces, where the directories above are closed to others.
AS_REACHABLE := packaging/reachable

.PHONY: build
build: tracing $(VENV)/bin/qjoule-load $(AGENT_FILES:%=$(VENV)/lib/qjoule/%) $(VENV)/installed-test ## The command in .venv/bin/qjoule, its tracer beside it
	@$(READABLE)

# What records and attributes, without the parts for studies, fleets and JVMs.
.PHONY: tracing
tracing: $(VENV)/bin/qjoule-tracer $(VENV)/bin/qjoule-root $(VENV)/installed
	@$(READABLE)

# The servers of the registry, as C.
$(REGISTRY_HEADERS) &: $(REGISTRY)
	@mkdir -p $(@D)
	PYTHONPATH=attribution/src $(PYTHON) -B -m qjoule.servers.registry_header $(@D)

# The lexical automaton of SQL, as C.
$(SHAPE_TABLES): $(SHAPES)
	@mkdir -p $(@D)
	PYTHONPATH=attribution/src $(PYTHON) -B -m qjoule.shapes.tables > $@.new
	mv $@.new $@

$(BUILD)/bpf/%.bpf.o: bpf/%.bpf.c $(BPF_HEADERS) | $(BUILD)/installed
	@mkdir -p $(@D)
	$(CLANG) $(BPF_FLAGS) -c $< -o $@

$(BUILD)/bpf/%.early.o: bpf/%.bpf.c $(BPF_HEADERS) | $(BUILD)/installed
	@mkdir -p $(@D)
	$(CLANG) $(BPF_FLAGS) -DQJ_EARLY -fvisibility=hidden -c $< -o $@

$(BUILD)/bpf/qjoule.bpf.o: $(BPF_OBJECTS)
	bpftool gen object $@ $^

$(BUILD)/bpf/qjoule_early.bpf.o: $(EARLY_OBJECTS)
	bpftool gen object $@ $^

$(EARLY_SKELETON): $(BUILD)/bpf/qjoule_early.bpf.o
	bpftool gen skeleton $< name qjoule_early_bpf > $@.new
	mv $@.new $@

$(SKELETON): $(BUILD)/bpf/qjoule.bpf.o
	bpftool gen skeleton $< name qjoule_bpf > $@.new
	mv $@.new $@

$(BUILD)/qjoule-tracer: attribution/src/qjoule/__init__.py $(TRACER_SOURCES) $(TRACER_HEADERS) $(BPF_HEADERS) $(SKELETONS)
	$(CC) $(TRACER_FLAGS) $(TRACER_SOURCES) -o $@ $(TRACER_LIBS)

# The same tracer under AddressSanitizer and UndefinedBehaviorSanitizer, for the tests.
$(BUILD)/qjoule-tracer-asan: $(TRACER_SOURCES) $(TRACER_HEADERS) $(BPF_HEADERS) $(SKELETONS)
	$(CC) $(filter-out -D_FORTIFY_SOURCE=2,$(TRACER_FLAGS)) $(SANITIZE) $(TRACER_SOURCES) -o $@ $(TRACER_LIBS)

# The only part that runs with root's rights.
$(BUILD)/qjoule-root: $(ROOT_SOURCES) $(ROOT_HEADERS) $(BPF_HEADERS) $(SKELETONS)
	$(CC) $(ROOT_FLAGS) $(ROOT_SOURCES) -o $@ $(ROOT_LIBS)

$(BUILD)/qjoule-root-asan: $(ROOT_SOURCES) $(ROOT_HEADERS) $(BPF_HEADERS) $(SKELETONS)
	$(CC) $(filter-out -D_FORTIFY_SOURCE=2,$(ROOT_FLAGS)) $(SANITIZE) $(ROOT_SOURCES) -o $@ $(ROOT_LIBS)

# What `qjoule calibrate` keeps the CPUs busy with.
$(BUILD)/qjoule-load: $(LOAD_SOURCES) $(wildcard tracer/load/*.h) | $(BUILD)/installed
	@mkdir -p $(@D)
	$(CC) $(LOAD_FLAGS) $(LOAD_SOURCES) -o $@ $(LOAD_LIBS)

$(VENV)/bin/qjoule-%: $(BUILD)/qjoule-% $(VENV)/installed
	install -m 755 $< $@

# ---- use ---------------------------------------------------------------------------------------

.PHONY: demo
demo: tracing ## Joules per query of a MariaDB that it starts itself
	$(AS_REACHABLE) $(VENV)/bin/python examples/demo/demo.py

.PHONY: pictures
pictures: build ## docs/pictures of the README: the live view and the report page, of a demo
	rm -rf $(BUILD)/pictures && mkdir -p $(BUILD)/pictures
	$(AS_REACHABLE) $(VENV)/bin/python examples/demo/demo.py --keep $(BUILD)/pictures/demo.qjoule
	$(AS_REACHABLE) $(VENV)/bin/python examples/demo/pictures.py $(BUILD)/pictures/demo.qjoule docs/pictures

.PHONY: servers
servers: $(VENV)/installed-test ## Fetch the servers that tests need and Debian lacks (SERVERS="NAME..." for some)
	PYTHONPATH=tests/support $(VENV)/bin/python -m servers.fetched $(SERVERS)

# ---- test --------------------------------------------------------------------------------------

# A test's folder says what it costs, and `-m exclusive` selects what needs the machine to itself:
# conftest.py. A folder that is not named here runs alone.
FAST    := $(wildcard tests/fast */tests/fast)
NIGHTLY := $(filter-out tests/nightly/vm,$(wildcard tests/nightly/* */tests/nightly))
TRACING := $(filter-out tests/nightly tests/support tests/__pycache__ tests/fast,$(wildcard tests/*))
PYTEST  := $(AS_REACHABLE) $(VENV)/bin/python -m pytest
BESIDE  := -n logical --dist loadfile -m 'not exclusive'
# What pytest exits with if PYTEST_ARGS names no test of this part.
NONE_CHOSEN := 5
# Runs each part, whatever the parts before it said, and fails if one of them failed.
IN_PARTS = failed=0; trap 'exit 130' INT TERM; \
	part() { echo "$$*"; "$$@" $(PYTEST_ARGS) || { code=$$?; [ $$code = $(NONE_CHOSEN) ] || failed=$$code; }; }

.PHONY: test
test: build servers $(BUILD)/qjoule-tracer-asan $(BUILD)/qjoule-root-asan ## The main job on every server, with BPF (12 minutes)
	@$(IN_PARTS); \
	part $(PYTEST) $(BESIDE) $(FAST); \
	part $(PYTEST) $(BESIDE) $(TRACING); \
	part $(PYTEST) -m exclusive $(TRACING); \
	exit $$failed

.PHONY: test-all
test-all: test-nightly test-elsewhere test-versions test-packages test-vm ## All that `make test` leaves out (hours)

.PHONY: test-nightly
test-nightly: build servers $(BUILD)/qjoule-tracer-asan $(BUILD)/qjoule-root-asan ## Laws with many new examples, and the folders `nightly`
	@export HYPOTHESIS_PROFILE=nightly; $(IN_PARTS); \
	part $(PYTEST) $(BESIDE) $(FAST); \
	part $(PYTEST) $(BESIDE) $(NIGHTLY); \
	part $(PYTEST) -m exclusive $(NIGHTLY); \
	exit $$failed

.PHONY: test-fast
test-fast: build ## Tests without servers and without BPF
	$(PYTEST) $(BESIDE) $(FAST) $(PYTEST_ARGS)

# A server's tests are in a folder of each tier; its golden traces have its name.
SERVERS_TESTED := $(sort $(notdir $(patsubst %/,%,$(wildcard tests/servers/*/))))

# Golden traces that are called otherwise than the folder.
GOLDEN_mysql   := or mariadb
GOLDEN_mongodb := or mongod_like

.PHONY: test-server
test-server: ## All tests of one server, in every tier: SERVER=redis
	@[ -n "$(filter $(SERVER),$(SERVERS_TESTED))" ] || \
		{ echo "qjoule: no server is called '$(SERVER)': SERVER=$(subst $() $(),|,$(SERVERS_TESTED))" >&2; exit 2; }
	@$(MAKE) --no-print-directory build
	$(PYTEST) $(wildcard tests/*/$(SERVER)) $(PYTEST_ARGS)
	$(PYTEST) tests/fast/golden/test_recorded_traces.py -k '$(SERVER) $(GOLDEN_$(SERVER))' $(PYTEST_ARGS)

.PHONY: test-elsewhere
test-elsewhere: build ## Tests without BPF as just booted, at UTC+13, umask 077, another locale and TMPDIR (as root)
	tests/support/elsewhere $(PYTEST) $(BESIDE) $(FAST) $(PYTEST_ARGS)

STATEMENTS := 100000

.PHONY: test-counts
test-counts: build servers ## Counts and tags over many statements of 64 clients (STATEMENTS=100000), every server
	QJOULE_TEST_STATEMENTS=$(STATEMENTS) $(PYTEST) --timeout=1800 tests/servers $(shell grep -rl long_runs tests/nightly) $(PYTEST_ARGS)

.PHONY: test-versions
test-versions: build ## Servers of Debian's newer suites, by chroot in root trees of their own (1 GB to fetch)
	$(PYTEST) -m versions $(NIGHTLY) $(PYTEST_ARGS)

.PHONY: test-mongod
test-mongod: build ## The tests of MongoDB against a real one: MONGOD=/path/to/mongod
	@test -x "$(MONGOD)" || { echo "qjoule: MONGOD=/path/to/mongod names no program: '$(MONGOD)'" >&2; exit 2; }
	MONGOD=$(MONGOD) $(PYTEST) tests/servers/mongodb/test_record_mongodb.py -k real $(PYTEST_ARGS)

.PHONY: test-vm
test-vm: build $(BUILD)/vm/installed ## Tests on emulated machines: x86-64 with energy counters and SMT, arm64 with a PMU
	$(PYTEST) tests/nightly/vm -v --durations=8 $(PYTEST_ARGS)

$(BUILD)/vm/installed: packaging/debian-packages-vm.txt packaging/install
	packaging/install $<
	@mkdir -p $(@D) && touch $@

.PHONY: lint
lint: $(VENV)/installed-test $(SKELETON) ## Style and types, warnings as errors
	$(VENV)/bin/ruff check $(PY_SOURCES)
	$(VENV)/bin/ruff format --check $(PY_SOURCES)
	$(VENV)/bin/mypy $(PY_SOURCES)
	clang-format --dry-run --Werror $(C_SOURCES)

.PHONY: docs
docs: $(VENV)/installed-test ## Pages of docs/ that are made from code and measurements
	$(VENV)/bin/python -m qjoule.servers.support_table >docs/servers.md.new
	mv docs/servers.md.new docs/servers.md
	$(VENV)/bin/python -m qjoule.servers.cost_page >docs/cost.md.new
	mv docs/cost.md.new docs/cost.md
	$(VENV)/bin/python packaging/tools/commands_page.py >docs/commands.md.new
	mv docs/commands.md.new docs/commands.md

.PHONY: bench-overhead
bench-overhead: build ## What tracing costs a server, paired and interleaved (BENCH_ARGS=--save for the docs)
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_overhead.py $(BENCH_ARGS)

.PHONY: bench-hooks
bench-hooks: build ## What the hooks cost another process and a server's thread, in tight loops (4 minutes)
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_hooks.py $(BENCH_ARGS)

.PHONY: bench-attach
bench-attach: build ## How long attaching takes beside 100 processes of a hostile user
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_attach.py $(BENCH_ARGS)

.PHONY: bench-stealing
bench-stealing: build ## Whether a user of ours, or a JVM's, ever takes a socket of the root part (20 minutes)
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_stealing.py $(BENCH_ARGS)

.PHONY: bench-neighbour
bench-neighbour: build ## The agent beside a user who starts and ends servers (23 minutes)
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_neighbour.py $(BENCH_ARGS)

.PHONY: bench-compare
bench-compare: build ## How often compare's verdicts are right, simulated (BENCH_ARGS="--record N" on a real server, too)
	$(AS_REACHABLE) $(VENV)/bin/python studies/bench/bench_compare.py $(BENCH_ARGS)

.PHONY: bench-shapes
bench-shapes: build ## How many new statements become shapes in a second (BENCH_ARGS="--old REVISION" beside another tree)
	$(VENV)/bin/python bench/bench_shapes.py $(BENCH_ARGS)

.PHONY: bench-report
bench-report: build ## How long a page of five million queries takes, and how large it is
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_report.py $(BENCH_ARGS)

.PHONY: bench-drivers
bench-drivers: build ## What the drivers' shims add to a call
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_drivers.py $(BENCH_ARGS)

.PHONY: bench-driver-suites
bench-driver-suites: build ## Whether database drivers pass their own tests with the shims as without them
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_driver_suites.py $(BENCH_ARGS)

.PHONY: bench-record-memory
bench-record-memory: build ## How much memory the processes of a recording hold, idle and under full load
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_record_memory.py $(BENCH_ARGS)

.PHONY: bench-attach-modes
bench-attach-modes: build ## What a query costs its server on each attach mode (BENCH_ARGS=--save for the docs)
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_attach_modes.py $(BENCH_ARGS)

.PHONY: bench-probes
bench-probes: $(VENV)/installed-test ## What one uprobe costs, by the way it is attached (as root)
	$(VENV)/bin/python bench/bench_probes.py $(BENCH_ARGS)

.PHONY: bench-ycsb
bench-ycsb: build ## What tracing takes of each server's throughput under YCSB's workload A
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_ycsb.py $(BENCH_ARGS)

.PHONY: bench-engine
bench-engine: $(VENV)/installed-test ## How fast and in how much memory traces are attributed
	$(VENV)/bin/python bench/bench_engine.py $(BENCH_ARGS)

.PHONY: bench-agent
bench-agent: $(VENV)/installed-test ## What the agent takes: CPU, memory, page, disk, a simulated day
	$(VENV)/bin/python bench/bench_agent.py $(BENCH_ARGS)

.PHONY: bench-agent-processes
bench-agent-processes: build ## CPU time and memory of the agent's processes beside a MariaDB with 2,000 queries/s
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_agent_processes.py $(BENCH_ARGS)

.PHONY: bench-convert
bench-convert: $(VENV)/installed-test ## How fast captured recordings become tables
	$(VENV)/bin/python bench/bench_convert.py $(BENCH_ARGS)

.PHONY: bench-accuracy
bench-accuracy: $(VENV)/installed-test ## How true the joules are beside other methods, where the truth is known
	$(VENV)/bin/python studies/bench/bench_accuracy.py $(BENCH_ARGS)

.PHONY: bench-faults
bench-faults: build ## How many planted faults the tests find
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_faults.py $(BENCH_ARGS)

.PHONY: bench-estimates
bench-estimates: $(VENV)/installed-test ## How wrong the estimated power is (BENCH_ARGS=--save after a change of its tables)
	$(VENV)/bin/python studies/bench/bench_estimates.py $(BENCH_ARGS)

.PHONY: bench-memory
bench-memory: $(VENV)/installed-test ## What a machine's memory is worth, simulated
	$(VENV)/bin/python studies/bench/bench_memory.py $(BENCH_ARGS)

.PHONY: bench-real
bench-real: $(VENV)/installed-test ## How true the joules are on real energy counters of others (DATA=DIR)
	$(VENV)/bin/python studies/bench/bench_real.py "$(DATA)"

.PHONY: bench-quick
bench-quick: $(VENV)/installed-test ## What a quick calibration is worth, simulated
	$(VENV)/bin/python studies/bench/bench_quick.py $(BENCH_ARGS)

.PHONY: bench-fleet
bench-fleet: $(VENV)/installed-test ## What questions about a fleet cost, and 1,000 kills (BENCH_ARGS=--save for the docs)
	$(VENV)/bin/python fleet/bench/bench_fleet.py $(BENCH_ARGS)

.PHONY: bench-help
bench-help: $(VENV)/installed-test ## What `--help` and shell completion take
	$(VENV)/bin/python bench/bench_help.py $(BENCH_ARGS)

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BUILD) $(VENV) */build attribution/src/qjoule/model/_sweep*.so attribution/src/qjoule/shapes/_shapes*.so
