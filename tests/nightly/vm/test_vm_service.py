# SPDX-License-Identifier: Apache-2.0
"""The Debian package's service under systemd itself, on an emulated machine: Debian 12 with the
kernel of Debian 13.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from metrics_pages import samples
from nightly.packages.conftest import CleanRoot, clean_root
from nightly.vm.support import machine
from nightly.vm.support.machine import built_package
from servers.databases import or_skip

pytestmark = pytest.mark.timeout(4000)
RUN_TIMEOUT_S = 3000
PACKAGES = (
    *("systemd", "python3.11", "libstdc++6", "redis-server", "redis-tools", "dpkg", "tar"),
    *("dash", "coreutils", "findutils", "sed", "grep", "libc-bin", "diffutils", "util-linux"),
)
CALLS = 173
SETTINGS = 2  #: that redis-benchmark asks for at first
REDIS_UID = 990
MOST_EXPOSED = 2.7
#: CAP_SETGID, SETUID, SETPCAP, SYS_PTRACE, PERFMON, BPF, CHECKPOINT_RESTORE (capability.h).
RIGHTS = sum(1 << number for number in (6, 7, 8, 19, 38, 39, 40))
#: The shell that waits for the store's writer is hidden by CAP_SETPCAP (docs/security.md).
RIGHTS_OF = {"qjoule-root": RIGHTS, "sh": 1 << 8}
#: Runs /share/run and powers off; its streams are where tests look for them.
UNIT = """[Unit]
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
WorkingDirectory=/tmp
ExecStart=/bin/sh -c 'sh -eu /share/run >/share/out/log 2>&1; echo $$? >/share/out/status; sync'
"""
FSTAB = "tmpfs /tmp tmpfs mode=1777 0 0\ntmpfs /var/log tmpfs mode=755 0 0\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machine.Run]:
    machine.build("trixie")
    directory = tmp_path_factory.mktemp("service")
    deb = built_package("deb", "qjoule_*.deb")
    shutil.copy(deb, directory / "qjoule.deb")
    with or_skip(), clean_root(directory, PACKAGES, "tree") as root:
        with_systemd(root)
        shutil.copy(deb, root.tree / "var/qjoule.deb")
        root.ran("dpkg", "--force-depends", "--install", "/var/qjoule.deb")
        script = machine.HERE / "guest/service.sh"
        variables = {"CALLS": str(CALLS)}
        yield machine.run("trixie", script, directory, variables, RUN_TIMEOUT_S)


def with_systemd(root: CleanRoot) -> None:
    """Adds to a tree what systemd needs to boot it, and the unit that the test boots."""
    tree = root.tree
    units = "etc/systemd/system"
    for name in ("run/systemd", "share", "var/log", "var/tmp", "var/lib/redis", units):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "etc/passwd").write_text(
        f"root:x:0:0::/root:/bin/sh\nredis:x:{REDIS_UID}:{REDIS_UID}::/var/lib/redis:/bin/false\n"
        "nobody:x:65534:65534::/:/bin/false\n"
    )
    (tree / "etc/group").write_text(f"root:x:0:\nredis:x:{REDIS_UID}:\nnogroup:x:65534:\n")
    (tree / "etc/machine-id").write_text("")
    (tree / "etc/fstab").write_text(FSTAB)
    (tree / units / "examined.service").write_text(UNIT)
    (tree / units / "multi-user.target.wants").mkdir()
    (tree / units / "multi-user.target.wants/examined.service").symlink_to("../examined.service")
    (tree / units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")


def shown_lines(run: machine.Run, name: str) -> list[str]:
    return run.text(name).splitlines()


def calls(service: machine.Run, name: str) -> float:
    """Calls of all statements; those from before a statement had its series are in `other`."""
    values = samples(service.text(name).encode())
    return sum(
        number for (metric, _), number in values.items() if metric == "qjoule_query_calls_total"
    )


def test_systemd_is_told_when_the_agent_traces(service: machine.Run) -> None:
    assert shown_lines(service, "enabled_before") == ["disabled"], "by the installation"
    status, restarts, state = shown_lines(service, "ready")  # in systemd's own order
    assert (state, restarts) == ("running", "0")
    assert re.search(r"redis|queries/s", status)


def test_calls_are_what_clients_sent_across_a_restart_and_an_upgrade(service: machine.Run) -> None:
    assert calls(service, "counted") == 2 * CALLS + SETTINGS
    assert calls(service, "followed") == 3 * CALLS + 2 * SETTINGS
    assert shown_lines(service, "upgraded_state") == ["active"]
    assert calls(service, "upgraded") == calls(service, "followed")


def test_only_the_root_part_has_rights(service: machine.Run) -> None:
    uid = service.text("uid").strip()
    lines = [line for line in shown_lines(service, "processes") if line.strip()]
    assert len(lines) >= 5
    assert sum("Name: qjoule-root" in line for line in lines) == 1
    for line in lines:
        name = line.split()[1]
        rights = RIGHTS_OF.get(name, 0)
        assert f"CapEff: {rights:016x}" in line
        assert f"CapBnd: {rights if name == 'qjoule-root' else 0:016x}" in line
        assert name == "qjoule-root" or f"Uid: {uid} {uid} {uid} {uid}" in line
        assert "NoNewPrivs: 1" in line
        assert "Seccomp: 2" in line
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", service.text("security"))
    assert exposure
    assert float(exposure[1]) <= MOST_EXPOSED
    for line in shown_lines(service, "store"):
        mode, user, path = line.split(maxsplit=2)
        if path.startswith("/var/lib/qjoule/agent"):
            assert (user, mode[5], mode[7:]) == ("qjoule", "-", "---"), line


def test_the_journal_has_what_happened(service: machine.Run) -> None:
    journal = service.text("journal")
    assert "the configuration was read again" in journal
    assert "Permission denied" not in journal
    # The kernel gives its accounts of BPF programs to CAP_SYS_ADMIN alone (docs/agent.md).
    refused = [line for line in journal.splitlines() if "Operation not permitted" in line]
    assert all("what hooks cost the servers is unknown" in line for line in refused), refused
    assert "Traceback" not in journal
    before, hung, _ = journal.partition("Watchdog timeout")
    assert hung
    assert "Failed with result" not in before


def test_removing_the_package_ends_the_service_in_order(service: machine.Run) -> None:
    assert shown_lines(service, "removed") == ["inactive"]
    assert not service.text("left").strip()
    assert "Deactivated successfully" in service.text("journal")
