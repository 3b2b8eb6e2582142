# SPDX-License-Identifier: Apache-2.0
# Packages: wheels, an sdist, a Debian package, and what they consist of. See docs/install.md.
#
# The same tree gives the same bytes: nothing holds a time, a path, a user or the order of a
# directory. The time in archives is that of the tree's last commit.
PACKAGES := $(BUILD)/packages
DIST     := $(BUILD)/dist
TOOLS    := $(PACKAGES)/tools
ifndef SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH := $(shell cat packaging/epoch 2>/dev/null || git log -1 --format=%ct)
endif
export SOURCE_DATE_EPOCH

# Everything but the C library itself is linked statically.
PORTABLE         := $(BUILD)/portable
PORTABLE_TRACER  := -Wl,-z,relro,-z,now,-s -Wl,-Bstatic -lbpf -lelf -lz -lseccomp -lzstd -Wl,-Bdynamic -lm
PORTABLE_ROOT    := -Wl,-z,relro,-z,now,-s -Wl,-Bstatic -lbpf -lelf -lz -Wl,-Bdynamic
PORTABLE_FILES   := $(addprefix $(PORTABLE)/,qjoule-tracer qjoule-root qjoule-load)

$(PORTABLE_FILES): FORCE_PORTABLE
	@$(MAKE) --no-print-directory BUILD=$(PORTABLE) VENV=$(VENV) TRACER_LIBS='$(PORTABLE_TRACER)' \
	    ROOT_LIBS='$(PORTABLE_ROOT)' LOAD_LIBS='-Wl,-z,relro,-z,now,-s' $@
# One make builds all three: several would write the same BPF objects at once.
$(word 2,$(PORTABLE_FILES)): $(word 1,$(PORTABLE_FILES))
$(word 3,$(PORTABLE_FILES)): $(word 2,$(PORTABLE_FILES))
.PHONY: FORCE_PORTABLE
FORCE_PORTABLE:

# What makes wheels and reads them, of versions with checksums: another one might write other bytes.
$(TOOLS)/installed: packaging/tools/requirements.txt | $(BUILD)/packages/debian
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(BUILD)/packages/debian: packaging/debian-packages-packages.txt packaging/install
	packaging/install $<
	@mkdir -p $(@D) && touch $@

.PHONY: packages
packages: wheels deb ## Wheels, sdist, Debian package, SBOM in build/dist
	cd $(DIST) && sha256sum -- *.whl *.tar.gz *.deb *.json >SHA256SUMS
	@ls -l $(DIST)

.PHONY: wheels
wheels: $(PORTABLE_FILES) $(AGENT_FILES:%=$(AGENT)/%) $(TOOLS)/installed ## Wheels and the sdist, in build/dist
	packaging/wheel/make $(PORTABLE) $(AGENT) $(TOOLS) $(PACKAGES) $(DIST)

.PHONY: deb
deb: wheels $(VENV)/installed ## The Debian package, in build/dist
	packaging/debian/make $(TOOLS) $(PACKAGES) $(DIST) $(VERSION)

.PHONY: test-packages
test-packages: build packages ## Packages in clean root trees, two builds compared (as root; fetches Debian's Python)
	$(AS_REACHABLE) $(VENV)/bin/python -m pytest -m packages tests/packages $(PYTEST_ARGS)

.PHONY: bench-install
bench-install: packages ## Seconds from `pip install` to the first screen of top
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_install.py $(BENCH_ARGS)
