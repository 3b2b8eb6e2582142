/* SPDX-License-Identifier: GPL-2.0 */
/* What a CPU drew because it was busy, in nJ, as fake_rapl's parameter busy_mw says. */
u64 fake_rapl_busy_nj(unsigned int cpu);
