# SPDX-License-Identifier: Apache-2.0
# What the virtual machines of tests/nightly/vm are made of, below build/vm: kernels and libraries from
# Debian's packages, which are unpacked and not installed, and programs built for them.
# usage, at the top of the tree: make -f tests/nightly/vm/guests.mk amd64 arm64
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VM    := build/vm
HERE  := tests/nightly/vm
FLAGS := -std=gnu11 -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -static

# The module is built against installed headers, so the kernel must be the same.
KERNEL  := $(shell dpkg-query -W -f '$${Depends}' linux-headers-amd64 | grep -o '[0-9][^ ,]*-amd64' | head -n 1)
HEADERS := /usr/src/linux-headers-$(KERNEL)

MODULES := $(VM)/amd64/fake_rapl/fake_rapl.ko $(VM)/amd64/fake_rapl/fake_power_core.ko

ARM64_ROOT      := $(VM)/arm64/root
ARM64_LIBRARIES := libbpf-dev libelf-dev libseccomp-dev libxxhash-dev libzstd-dev zlib1g-dev
ARM64_CC        := aarch64-linux-gnu-gcc -static -isystem $(ARM64_ROOT)/usr/include \
                   -isystem $(ARM64_ROOT)/usr/include/aarch64-linux-gnu \
                   -L$(ARM64_ROOT)/usr/lib/aarch64-linux-gnu

# Kernels to run on: Linux 5.10, 6.1, 6.12, and Debian's newest.
SUITES := bullseye bookworm trixie sid

.PHONY: amd64 arm64 arm64-trixie $(SUITES)
amd64: $(VM)/amd64/initramfs
arm64: $(VM)/arm64/initramfs
arm64-trixie: $(VM)/arm64-trixie/initramfs
$(SUITES): %: $(VM)/%/initramfs

$(VM)/amd64/initramfs: $(VM)/amd64/fetched-$(KERNEL) build/qjoule-tracer build/qjoule-root $(VM)/amd64/traced \
                       $(VM)/amd64/counted_load $(MODULES) $(HERE)/initramfs $(HERE)/guest/init
	$(HERE)/initramfs $(VM)/amd64/root $@ $(filter build/%tracer build/%root %traced %load %.ko,$^)

$(VM)/arm64/initramfs: $(VM)/arm64/fetched $(VM)/arm64/qjoule-tracer $(VM)/arm64/qjoule-root \
                       $(VM)/arm64/traced $(VM)/arm64/counted_load $(HERE)/initramfs $(HERE)/guest/init
	$(HERE)/initramfs $(ARM64_ROOT) $@ $(filter %tracer $(VM)/arm64/qjoule-root %traced %load,$^)

$(SUITES:%=$(VM)/%/initramfs): $(VM)/%/initramfs: $(VM)/%/fetched build/qjoule-tracer build/qjoule-root $(VM)/amd64/traced \
                       $(HERE)/initramfs $(HERE)/guest/init
	$(HERE)/initramfs $(VM)/$*/root $@ $(filter build/%tracer build/%root %traced,$^)

$(SUITES:%=$(VM)/%/fetched): $(VM)/%/fetched: packaging/fetch
	packaging/fetch --suite $* amd64 $(@D) linux-image-amd64 busybox-static
	touch $@

$(VM)/amd64/fetched-$(KERNEL): packaging/fetch
	packaging/fetch amd64 $(@D) linux-image-$(KERNEL) busybox-static
	touch $@

# It runs what is installed in a root tree beside it: the wheel.
$(VM)/arm64-trixie/initramfs: $(VM)/arm64-trixie/fetched $(HERE)/initramfs $(HERE)/guest/init
	$(HERE)/initramfs $(VM)/arm64-trixie/root $@

$(VM)/arm64-trixie/fetched: packaging/fetch
	packaging/fetch --suite trixie arm64 $(@D) linux-image-arm64 busybox-static
	touch $@

$(VM)/arm64/fetched: packaging/fetch
	packaging/fetch arm64 $(@D) linux-image-arm64 busybox-static $(ARM64_LIBRARIES)
	touch $@

# ---- programs ------------------------------------------------------------------------------------

build/qjoule-tracer build/qjoule-root build/bpf/registry.h: FORCE
	$(MAKE) $@

$(VM)/amd64/counted_load: $(HERE)/guest/counted_load.c | $(VM)/amd64/fetched-$(KERNEL)
	gcc $(FLAGS) $< -o $@

TRACED := $(HERE)/guest/traced.c tracer/root_part.c

$(VM)/amd64/traced: $(TRACED) tracer/system.h tracer/root/protocol.h | build/bpf/registry.h $(VM)/amd64/fetched-$(KERNEL)
	gcc $(FLAGS) -Ibpf -Ibuild/bpf -Itracer $(TRACED) -o $@

$(VM)/arm64/traced: $(TRACED) tracer/system.h tracer/root/protocol.h | build/bpf/registry.h $(VM)/arm64/fetched
	$(ARM64_CC) $(FLAGS) -Ibpf -Ibuild/bpf -Itracer $(TRACED) -o $@

$(MODULES) &: $(wildcard $(HERE)/fake_rapl/*) | $(VM)/amd64/fetched-$(KERNEL)
	mkdir -p $(VM)/amd64/fake_rapl
	cp $^ $(VM)/amd64/fake_rapl
	$(MAKE) -C $(HEADERS) M=$(abspath $(VM)/amd64/fake_rapl) modules

$(VM)/arm64/counted_load: $(HERE)/guest/counted_load.c | $(VM)/arm64/fetched
	$(ARM64_CC) $(FLAGS) $< -o $@

# The tracer and its root part as the Makefile builds them, with another machine's compiler and libraries.
$(VM)/arm64/qjoule-tracer $(VM)/arm64/qjoule-root: $(VM)/arm64/fetched FORCE
	$(MAKE) BUILD=$(VM)/arm64 BPF_ARCH=arm64 CC='$(ARM64_CC)' $@

.PHONY: FORCE
FORCE:
