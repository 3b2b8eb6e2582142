/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* One member or a path of members: BPF_CORE_READ(from, a, b) is from->a->b. */
#define HOST_READ_1(from, a)			 ((from)->a)
#define HOST_READ_2(from, a, b)			 ((from)->a->b)
#define HOST_READ_3(from, a, b, c)		 ((from)->a->b->c)
#define HOST_READ_4(from, a, b, c, d)		 ((from)->a->b->c->d)
#define HOST_READ_5(from, a, b, c, d, e)	 ((from)->a->b->c->d->e)
#define HOST_READ(_1, _2, _3, _4, _5, name, ...) name
#define BPF_CORE_READ(from, ...)                                                                   \
	HOST_READ(__VA_ARGS__, HOST_READ_5, HOST_READ_4, HOST_READ_3, HOST_READ_2, HOST_READ_1)    \
	(from, __VA_ARGS__)
#define BPF_CORE_READ_INTO(to, from, member) (*(to) = (from)->member)
