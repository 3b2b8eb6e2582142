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
PORTABLE_TRACER  := -Wl,-s -Wl,-Bstatic -lbpf -lelf -lz -lseccomp -lzstd -Wl,-Bdynamic -lm
PORTABLE_ROOT    := -Wl,-s -Wl,-Bstatic -lbpf -lelf -lz -Wl,-Bdynamic

# Of these programs a wheel consists. One make builds all of a directory: several would write the same BPF objects at once.
PORTABLE_MADE = $(MAKE) --no-print-directory VENV=$(VENV) TRACER_LIBS='$(PORTABLE_TRACER)' ROOT_LIBS='$(PORTABLE_ROOT)' \
                LOAD_LIBS='-Wl,-s'
PORTABLE_NAMES  := qjoule-tracer qjoule-root qjoule-load $(AGENT_FILES:%=agent/%)

.PHONY: portable
portable:
	@$(PORTABLE_MADE) BUILD=$(PORTABLE) $(PORTABLE_NAMES:%=$(PORTABLE)/%)

# The same for arm64, by Debian's cross compiler and by Debian's libraries for arm64, which are unpacked and not installed.
AARCH64           := $(BUILD)/aarch64
AARCH64_LIBRARIES := libbpf-dev libelf-dev libpython3.11-dev libseccomp-dev libseccomp2 libxxhash-dev libzstd-dev zlib1g-dev
AARCH64_CC        := aarch64-linux-gnu-gcc -isystem $(AARCH64)/root/usr/include -isystem $(AARCH64)/root/usr/include/aarch64-linux-gnu \
                     -L$(AARCH64)/root/usr/lib/aarch64-linux-gnu
# An arm64 machine has no need of another wheel.
CROSS             := $(if $(filter x86_64,$(shell uname -m)),$(AARCH64))

$(AARCH64)/versions: packaging/fetch packaging/packages.mk | $(BUILD)/packages/debian
	packaging/fetch arm64 $(AARCH64) $(AARCH64_LIBRARIES)

.PHONY: portable-aarch64
portable-aarch64: $(AARCH64)/versions
	@$(PORTABLE_MADE) BUILD=$(AARCH64)/programs BPF_ARCH=arm64 CC='$(AARCH64_CC)' $(PORTABLE_NAMES:%=$(AARCH64)/programs/%)

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
wheels: portable $(if $(CROSS),portable-aarch64) $(TOOLS)/installed ## Wheels (x86-64 and aarch64) and the sdist, in build/dist
	packaging/wheel/make $(PORTABLE) $(TOOLS) $(PACKAGES) $(DIST) $(CROSS)

.PHONY: deb
deb: wheels $(VENV)/installed ## The Debian package, in build/dist
	packaging/debian/make $(TOOLS) $(PACKAGES) $(DIST) $(VERSION)

$(BUILD)/packages/image-tools: packaging/debian-packages-image.txt packaging/install
	packaging/install $<
	@mkdir -p $(@D) && touch $@

.PHONY: test-packages
test-packages: build packages $(BUILD)/packages/image-tools ## Packages in clean root trees, the image, two builds compared (as root; fetches Debian's Python)
	$(AS_REACHABLE) $(VENV)/bin/python -m pytest -m packages tests/nightly/packages $(PYTEST_ARGS)

.PHONY: bench-install
bench-install: packages ## Seconds from `pip install` to the first screen of top
	$(AS_REACHABLE) $(VENV)/bin/python bench/bench_install.py $(BENCH_ARGS)
