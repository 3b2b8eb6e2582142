# SPDX-License-Identifier: Apache-2.0
"""The root part grants the reattach helper looks at a rate, which nobody can use up for ever."""

from __future__ import annotations

import subprocess
from pathlib import Path

from host_library import registry_include

TREE = Path(__file__).parents[3]
#: Asks ten times a second, and prints how many looks each 100 s had.
PROGRAM = """
#include <time.h>
static int fake_clock(clockid_t, struct timespec *now);
#define clock_gettime fake_clock
#include "root/look.c"
static long tenths = 12340;
static int fake_clock(clockid_t id, struct timespec *now)
{
	now->tv_sec = tenths / 10;
	return 0;
}
int main(void)
{
	for (int part = 0; part < 5; part++) {
		int looks = 0;
		for (long end = tenths + 1000; tenths < end; tenths++)
			looks += may_look();
		if (part == 2)
			tenths += 10000; /* nobody asks for 1,000 s */
		printf("%d ", looks);
	}
}
"""


def test_looks_come_back(tmp_path: Path) -> None:
    source, program = tmp_path / "looks.c", tmp_path / "looks"
    source.write_text(PROGRAM)
    folders = [f"-I{TREE / name}" for name in ("tracer", "tracer/root", "bpf")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-w", registry_include(tmp_path), *folders]
    build = ["gcc", *flags, str(source), "-o", str(program)]
    subprocess.run([*build, "-ffunction-sections", "-Wl,--gc-sections"], check=True)
    looks = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert looks == ["73", "10", "10", "73", "10"]
