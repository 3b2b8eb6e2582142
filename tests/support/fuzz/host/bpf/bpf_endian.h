/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#define bpf_ntohl(x) __builtin_bswap32(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
