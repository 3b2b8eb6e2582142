# SPDX-License-Identifier: Apache-2.0
"""Packages of Debian suites other than the machine's, unpacked into root trees of their own; two
programs of Debian's, unpacked and not installed.

A private state directory keeps the machine's own apt configuration out of it, and untouched. apt
checks every list and package against Debian's signatures (package debian-archive-keyring).
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from qjoule_studies.servers.prerequisites import Unavailable
from servers.fetched.cache import cache, folder, run_tool

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

#: What only the scripts of an installation use, by how names begin: not unpacked.
_ONLY_FOR_INSTALLING = (
    *("adduser", "base-passwd", "debconf", "libdebconf", "login", "passwd", "ucf"),
    *("libc-l10n", "libperl", "locales", "perl", "systemd", "sysvinit-utils", "procps"),
)
#: The links of a merged /usr, which the package base-files would make.
_MERGED = ("bin", "lib", "lib64", "sbin")
#: Character devices with their numbers: what a server expects of the smallest container.
_DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}

_INSTALLED = re.compile(r"^Inst (\S+)(?: \[\S*\])? \((\S+) ", re.MULTILINE)


def root_tree(suite: str, packages: Sequence[str], architecture: str = "") -> Path:
    """A directory to be entered by chroot."""
    if os.geteuid() != 0:
        raise Unavailable("a root tree has device files, which only root can make")

    def fill(directory: Path) -> None:
        versions = download(suite, packages, directory / "var/cache/packages", architecture)
        _lay_out(directory)
        for file in sorted((directory / "var/cache/packages").iterdir()):
            run_tool(["dpkg-deb", "-x", str(file), str(directory)], directory, file.name)
            file.unlink()
        (directory / "packages").write_text(
            "".join(f"{name} {version}\n" for name, version in sorted(versions.items()))
        )

    name = "-".join(filter(None, (suite, architecture, packages[0])))
    return folder(name, " ".join(filter(None, (suite, architecture, *packages))), fill)


def version(tree: Path, package: str) -> str:
    """The upstream version of a package in a tree: `11.8.6` of `1:11.8.6-0+deb13u1`."""
    lines = (tree / "packages").read_text().splitlines()
    full_version = dict(line.split(" ") for line in lines)[package]
    return re.sub(r"^\d+:|[-+~].*$", "", full_version)


def download(
    suite: str, packages: Sequence[str], destination: Path, architecture: str = ""
) -> dict[str, str]:
    """Puts packages of a suite, and all that they need when they run, into a directory."""
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix=f".apt-{suite}-") as directory:
        state = _private_state(Path(directory), suite, mirror(), architecture)
        environment = {"APT_CONFIG": str(state)}
        task = f"packages of Debian {suite}"
        run_tool(["apt-get", "-q", "update"], destination, task, environment)
        install = ["apt-get", "-q", "-s", "install", *packages]
        installed = dict(_INSTALLED.findall(run_tool(install, destination, task, environment)))
        versions = {
            name: version
            for name, version in installed.items()
            if name in packages or not name.startswith(_ONLY_FOR_INSTALLING)
        }
        exact = [f"{name}={version}" for name, version in versions.items()]
        run_tool(["apt-get", "-q", "download", *exact], destination, task, environment)
    return versions


def mirror() -> str:
    """Where this machine gets Debian's main archive from: other suites are beside its own."""
    query = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    for line in run_tool(query, Path("/"), "the machine's mirror").splitlines():
        label, _, address = line.partition(" ")
        if label == "Debian":
            return address
    raise Unavailable("apt knows no mirror of Debian's: run 'apt-get update'")


def _private_state(directory: Path, suite: str, mirror: str, architecture: str) -> Path:
    """apt's configuration for one suite, below a directory: apt reads and writes nothing else."""
    if not KEYRING.exists():
        raise Unavailable(f"{KEYRING} is missing: install the package debian-archive-keyring")
    for name in ("lists/partial", "archives/partial"):
        (directory / name).mkdir(parents=True)
    (directory / "status").touch()
    sources = directory / "suite.sources"
    sources.write_text(
        f"Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"
    )
    own = run_tool(["dpkg", "--print-architecture"], directory, "its architecture").strip()
    options = {
        # A private state does not keep apt from installing packages below the machine's own root.
        # Without dpkg no package can be unpacked.
        "Dir::Bin::dpkg": "/bin/false",
        "APT::Get::Simulate": "true",
        "APT::Architecture": architecture or own,
        "APT::Architectures": architecture or own,
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": os.devnull,
        "Dir::Etc::Main": os.devnull,
        "Dir::Etc::Parts": os.devnull,
        "Dir::Etc::Preferences": os.devnull,
        "Dir::Etc::PreferencesParts": os.devnull,
        "Dir::State": directory,
        "Dir::State::Lists": directory / "lists",
        "Dir::State::Status": directory / "status",
        "Dir::Cache": directory,
        "Acquire::Languages": "none",
        # A mirror that is behind has lists past their date. Their signatures are still checked.
        "Acquire::Check-Valid-Until": "false",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",  # its own user may not enter the cache
    }
    configuration = directory / "apt.conf"
    configuration.write_text("".join(f'{name} "{value}";\n' for name, value in options.items()))
    return configuration


def _lay_out(tree: Path) -> None:
    """Makes files that packages expect, or that their installation scripts would make."""
    tree.chmod(0o755)
    for name in _MERGED:
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "dev/shm"):
        (tree / name).mkdir(parents=True)
        (tree / name).chmod(0o1777)
    for name, numbers in _DEVICES.items():
        os.mknod(tree / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        (tree / "dev" / name).chmod(0o666)
    (tree / "etc").mkdir()
    for name in ("passwd", "group"):
        (tree / "etc" / name).write_bytes(Path("/etc", name).read_bytes())
    (tree / "etc" / "hosts").write_text("127.0.0.1 localhost\n")


def pt_query_digest() -> Path:
    """The real pt-query-digest, of Debian's package percona-toolkit: a single Perl program, fetched
    on first use. Raises Unavailable.
    """

    def fill(directory: Path) -> None:
        packages = directory / "packages"
        download("trixie", ["percona-toolkit"], packages)
        (package,) = packages.glob("percona-toolkit_*.deb")
        run_tool(["dpkg-deb", "-x", str(package), str(directory)], directory, package.name)
        for file in packages.iterdir():
            file.unlink()

    return folder("percona-toolkit", "trixie", fill) / "usr/bin/pt-query-digest"


def prometheus() -> Path:
    """The folder with the programs `prometheus` and `promtool`. Raises Unavailable."""
    return folder("prometheus", "prometheus", _fill_prometheus)


def _fill_prometheus(directory: Path) -> None:
    run_tool(["apt-get", "-q", "download", "prometheus"], directory, "Prometheus")
    for package in sorted(directory.glob("*.deb")):
        run_tool(["dpkg-deb", "-x", str(package), "unpacked"], directory, package.name)
        package.unlink()
    for program in ("prometheus", "promtool"):
        unpacked = directory / "unpacked/usr/bin" / program
        if not unpacked.is_file():
            raise Unavailable(f"Debian's package prometheus has no {program}")
        unpacked.rename(directory / program)
    run_tool(["rm", "-r", "unpacked"], directory, "Prometheus")
