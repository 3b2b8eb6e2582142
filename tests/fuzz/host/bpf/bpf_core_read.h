/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#define BPF_CORE_READ(from, member)	     ((from)->member)
#define BPF_CORE_READ_INTO(to, from, member) (*(to) = (from)->member)
