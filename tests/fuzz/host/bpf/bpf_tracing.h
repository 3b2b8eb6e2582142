/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Nothing: parsers have no hook of their own. */
