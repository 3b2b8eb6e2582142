# SPDX-License-Identifier: Apache-2.0
"""Builds ``energy_probe.c`` and talks to it; makes the fake trees that it reads."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from host_library import generated_headers
from other_user import for_all_users
from qjoule.contract import WHOLE_PACKAGE, DomainKind

HERE = Path(__file__).parent
TREE = HERE.parents[2]
SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
UNPRIVILEGED = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
ONE_PACKAGE = "0:0,1:0"
TWO_PACKAGES = "0:0,1:0,2:1,3:1"
INTEL_MAX_UJ = 262143328850  #: the range of 2^-14 J counters on every Intel server
AMD_MAX_UJ = 65532610987  #: 2^-16 J


@functools.cache
def build(*, sanitized: bool = True) -> Path:
    """Compiles the probe with warnings as errors; the directory is removed with the tests."""
    folder = Path(tempfile.mkdtemp(prefix="qjoule-energy-probe-", dir=for_all_users()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)  # the tests also run it as user nobody
    program = folder / "energy_probe"
    tracer = TREE / "tracer"
    sources = [HERE / "energy_probe.c", *sorted(tracer.glob("energy/*.c")), tracer / "root_part.c"]
    warnings = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
    flags = SANITIZE if sanitized else ("-O2",)
    include = (f"-I{TREE / 'bpf'}", generated_headers(folder), f"-I{tracer}")
    link = ["-o", str(program), *map(str, sources), "-lm", "-Wl,--wrap=clock_gettime"]
    subprocess.run(["gcc", *warnings, *flags, *include, *link], check=True)
    return program


@dataclass(frozen=True)
class Domain:
    index: int
    package: int
    name: str
    unit_j: float
    range: int
    period_ns: int
    kind: DomainKind
    error: int  #: thousandths
    idle_w: float
    die: int | None  #: None: it covers its whole package


class Reading(NamedTuple):
    t_ns: int
    half_width_ns: int
    raw: int
    status: int
    package: int
    domain: int


class Probe:
    """One opened source. ``error`` is 0 or a negative errno, ``why`` its line."""

    def __init__(
        self,
        spec: str,
        cpus: str = ONE_PACKAGE,
        *,
        wrapper: tuple[str, ...] = (),
        sanitized: bool = True,
        **options: str | Path | int,
    ) -> None:
        keys = [f"{key}={value}" for key, value in options.items()]
        self._process = subprocess.Popen(
            [*wrapper, str(build(sanitized=sanitized)), spec, cpus, *keys],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        answer = self._answer()
        _, error, why = answer[0].split("\t", 2)
        self.error, self.why = int(error), why
        self.name, self.grade = "", 0
        self.domains: list[Domain] = []
        self.cores: list[Domain] = []
        for line in answer[1:]:
            record_type, *values = line.split("\t")
            if record_type == "source":
                self.name, self.grade = values[0], int(values[1])
            else:
                *values, idle_w, die = values
                index, package, name, unit, modulus, period_ns, kind, error = values
                fields = (int(index), int(package), name, float(unit), int(modulus))
                more = (int(period_ns), DomainKind(int(kind)), int(error), float(idle_w))
                of_die = None if int(die) == WHOLE_PACKAGE else int(die)
                domains = self.cores if record_type == "core" else self.domains
                domains.append(Domain(*fields, *more, of_die))

    def _answer(self) -> list[str]:
        assert self._process.stdout is not None
        lines: list[str] = []
        for raw in self._process.stdout:
            line = raw.decode(errors="surrogateescape").rstrip("\n")
            if line == "end":
                return lines
            lines.append(line)
        _, stderr = self._process.communicate()
        raise AssertionError(f"probe ended ({self._process.returncode}): {stderr.decode()}")

    def tell(self, command: str) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def read(self) -> list[Reading]:
        *readings, failed = self.tell("read")
        out = [Reading(*map(int, line.split("\t")[1:])) for line in readings]
        assert int(failed.split("\t")[1]) == sum(r.status != 0 for r in out)
        assert [r.domain for r in out] == [d.index for d in self.domains]
        assert [r.package for r in out] == [d.package for d in self.domains]
        return out

    def read_cores(self) -> list[Reading]:
        out = [Reading(*map(int, line.split("\t")[1:])) for line in self.tell("cores")]
        assert [(r.package, r.domain) for r in out] == [(d.package, d.index) for d in self.cores]
        return out

    def wait(self, seconds: float) -> None:
        """Advances the source's clock."""
        self.tell(f"wait {round(seconds * 1e9)}")

    def raws(self) -> list[int]:
        readings = self.read()
        assert all(r.status == 0 for r in readings), readings
        return [r.raw for r in readings]

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        _, stderr = self._process.communicate()
        if kind is None:  # sanitizers report at exit, leaks last
            assert self._process.returncode == 0, stderr.decode()
            assert not stderr, stderr.decode()


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary directory that everybody may enter."""
    before = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix="qjoule-energy-", dir=for_all_users()) as name:
            folder = Path(name)
            folder.chmod(0o755)
            yield folder
    finally:
        os.umask(before)


def refusal(spec: str, cpus: str = ONE_PACKAGE, **options: Any) -> tuple[int, str]:
    """The error (errno) and the reason of a source that cannot be opened."""
    with Probe(spec, cpus, why_bytes=4096, **options) as probe:
        assert probe.error < 0, "it was opened"
        return -probe.error, probe.why


def auto(folder: Path, **options: Any) -> Probe:
    """The source that `auto` opens if the trees of all sources are in `folder`."""
    return Probe(
        "auto",
        powercap_root=folder / "powercap",
        perf_sysfs=folder / "power",
        hwmon_root=folder / "hwmon",
        why_bytes=4096,
        **options,
    )


def write(path: Path, text: str) -> Path:
    """Writes in place, as sysfs does: a file that is already open sees the new value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def zone(
    root: Path, directory: str, name: str | None, energy_uj: int | str, max_uj: int | str | None
) -> Path:
    """Adds a powercap zone and returns its ``energy_uj``; None leaves a file out."""
    if name is not None:
        write(root / directory / "name", f"{name}\n")
    if max_uj is not None:
        write(root / directory / "max_energy_range_uj", f"{max_uj}\n")
    write(root / directory / "enabled", "0\n")
    return write(root / directory / "energy_uj", f"{energy_uj}\n")


def limited(folder: Path, watts: float, *, most_w: float | None, enabled: bool = True) -> Path:
    """Gives a zone a long-term power limit, and returns its file. `most_w`: of the hardware."""
    write(folder / "enabled", f"{enabled:d}\n")
    write(folder / "constraint_0_name", "long_term\n")
    if most_w is not None:
        write(folder / "constraint_0_max_power_uw", f"{round(most_w * 1e6)}\n")
    return write(folder / "constraint_0_power_limit_uw", f"{round(watts * 1e6)}\n")


def chip(root: Path, number: int, name: str, **files: int | str) -> Path:
    """Adds an hwmon chip and returns its directory."""
    folder = root / f"hwmon{number}"
    write(folder / "name", f"{name}\n")
    for file, text in files.items():
        write(folder / file, f"{text}\n")
    return folder


def pmu(root: Path, cpumask: str, events: dict[str, str], pmu_type: int | str = 1) -> Path:
    """Adds a PMU to sysfs. Type 1 is the kernel's software PMU: its events can be opened."""
    write(root / "type", f"{pmu_type}\n")
    write(root / "cpumask", f"{cpumask}\n")
    for event, config in events.items():
        write(root / "events" / event, f"{config}\n")
        write(root / "events" / f"{event}.unit", "Joules\n")
        write(root / "events" / f"{event}.scale", "2.3283064365386962890625e-10\n")
    return root
