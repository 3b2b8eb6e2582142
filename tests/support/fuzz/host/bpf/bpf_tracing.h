/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A hook is an ordinary function of its arguments. */
#define BPF_PROG(name, ...)   name(__VA_ARGS__)
#define BPF_KPROBE(name, ...) name(__VA_ARGS__)
