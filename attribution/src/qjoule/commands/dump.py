# SPDX-License-Identifier: Apache-2.0
"""`qjoule dump`: saves the contents of a flight recorder."""

from __future__ import annotations

import os
from pathlib import Path

import click

from qjoule.commands.say import say
from qjoule.errors import QjouleError, UsageError
from qjoule.process import READER, by_descriptor, drop_privileges
from qjoule.spool.dump_socket import SaveReply, ask_for_save, directory_of
from qjoule.spool.files import RingFiles
from qjoule.spool.recorder import describe_saved
from qjoule.spool.save import left_behind, save
from qjoule.trace.meta import Part


@click.command(
    short_help="Save what a flight recorder holds.",
    epilog="""\b
Examples:
  qjoule dump shop.qjoule
  sudo qjoule dump 4711
  qjoule attribute $(qjoule dump shop.qjoule)
""",
)
@click.argument("recorder", required=False, metavar="[DIRECTORY|PID]")
def command(*, recorder: str | None) -> int:
    """Save the last minutes that `qjoule record --keep` holds, and print the new directory.

    Give the recorder's directory or its process. Without either, the recorder of the working
    directory is asked, or the only one below it. If it has ended, what it left is saved, by its
    user: root gives up its rights for that.
    """
    directory, pid = _resolve_recorder(recorder)
    if not RingFiles(directory).folder.is_dir():
        raise QjouleError(f"{directory} is no flight recorder's directory (`qjoule record --keep`)")
    answer = ask_for_save(directory, pid)
    if answer is None:
        answer = _save_ended_recorder(directory)
    if answer.error:
        raise QjouleError(answer.error)
    say(f"saved {answer.seconds:.1f} s")
    if answer.late:
        say("its begin was written over meanwhile: it holds less than it should")
    click.echo(directory / answer.directory)
    return 0


def _resolve_recorder(recorder: str | None) -> tuple[Path, int | None]:
    """Returns the recorder's directory, and its pid if the user gave that."""
    if recorder is None:
        return _recorder_in_working_directory(), None
    if recorder.isdecimal() and not Path(recorder).exists():
        return directory_of(int(recorder))
    directory = Path(recorder)
    if not directory.is_dir():
        raise QjouleError(f"there is no directory {recorder}")
    if not os.access(directory, os.X_OK):
        raise QjouleError(f"not permitted: {recorder} belongs to another user: try with sudo")
    return directory, None


def _recorder_in_working_directory() -> Path:
    here = Path()
    if RingFiles(here).folder.is_dir():
        return here
    recorders = [path for path in here.iterdir() if RingFiles(path).folder.is_dir()]
    if len(recorders) != 1:
        how_many = "no flight recorder" if not recorders else f"{len(recorders)} flight recorders"
        raise UsageError(f"there is {how_many} in this directory: give its directory or process")
    return recorders[0]


def _save_ended_recorder(directory: Path) -> SaveReply:
    """Saves the contents of a recorder that does not run any more."""
    trace = _become_owner(directory)
    moment, meta = left_behind(trace)
    part = Part("end", "what the recorder held when it ended")
    saved = save(trace, moment, meta, part)
    say(describe_saved(saved, "the recorder has ended"))
    return SaveReply(saved.directory.name, saved.seconds, saved.late)


def _become_owner(directory: Path) -> Path:
    """Returns the directory. If root names another user's, this process first becomes that user.

    The user may change the directory meanwhile. So its owner is that of an open descriptor, and the
    returned path goes through this descriptor.
    """
    if os.geteuid():
        return directory
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        opened = os.open(directory, flags)
        ring = os.open(RingFiles(Path()).folder, flags, dir_fd=opened)
    except OSError as error:
        raise QjouleError(f"{directory}: {error.strerror}") from None
    both = [os.fstat(opened), os.fstat(ring)]
    owners = {(status.st_uid, status.st_gid) for status in both if status.st_uid}
    if not owners and all(status.st_gid == READER for status in both):
        owners.add((READER, READER))
    os.close(ring)
    if len({uid for uid, _ in owners}) > 1:
        raise QjouleError(f"{directory}: its owner is not that of the recording in it")
    if not owners:
        os.close(opened)
        return directory
    drop_privileges(*owners.pop())
    return by_descriptor(opened, str(directory))
