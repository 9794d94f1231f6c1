"""`sqlstream check`: damaged files, what they belong to, and repairs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import IntEnum

from sqlstream.errors import DamageError, SqlStreamError
from sqlstream.jobs.file_checks import Checkup, SavepointCheckup, check_savepoints, repair_savepoint
from sqlstream.session.session import Session


class Outcome(IntEnum):
    """The exit codes of a check: all is intact, damage remains, or no damage was found but something could not be checked."""

    INTACT = 0
    DAMAGED = 1
    UNCHECKED = 2


def checked(session: Session, job: str | None, *, repair: bool, write: Callable[[str], None]) -> Outcome:
    """Check a job and its savepoints, or all (None), and write a line per damaged file; `repair` what is damaged."""
    whole = True
    checkups = session.check(job)
    savepoints = check_savepoints(session.warehouse, job)
    if not (checkups or savepoints or session.warehouse.fs.exists(session.warehouse.root)):
        write(f'there is no warehouse in "{session.warehouse.root}": nothing was checked')
        return Outcome.UNCHECKED
    for checkup in checkups:
        for line in _lines(checkup, session.warehouse.root):
            write(line)
        if checkup.damaged:
            whole = repair and _repaired(session, checkup, write) and whole
    for savepoint in savepoints:
        for line in _savepoint_lines(savepoint, session.warehouse.root):
            write(line)
        if savepoint.damaged:
            whole = repair and _savepoint_repaired(session, savepoint, write) and whole
    read = [checkup for checkup in checkups if checkup.unreadable is None]
    if not any(checkup.damaged for checkup in read) and (read or not checkups):
        write(f'job "{read[0].job}" is intact' if len(read) == 1 else f"{len(read)} jobs are intact")
    intact = [one.name for one in savepoints if not one.damaged and one.unreadable is None]
    if intact and not any(one.damaged for one in savepoints):
        write(f'savepoint "{intact[0]}" is intact' if len(intact) == 1 else f"{len(intact)} savepoints are intact")
    if not whole:
        return Outcome.DAMAGED
    # A script that looks at the exit code must not take them for intact ones.
    reasons = [*(one.unreadable for one in checkups), *(one.unreadable for one in savepoints)]
    return Outcome.INTACT if all(reason is None for reason in reasons) else Outcome.UNCHECKED


def _lines(checkup: Checkup, root: str) -> list[str]:
    if checkup.unreadable is not None:
        return [f'job "{checkup.job}" was not checked: {checkup.unreadable}']
    if not checkup.damaged:
        return []
    return [f'job "{checkup.job}" is damaged:', *_files(checkup.damaged, root), f"  {_outlook(checkup)}"]


def _files(damaged: Iterable[DamageError], root: str) -> list[str]:
    return [f"  {os.path.relpath(e.path, root)} {e.fault}. {e.detail or ''}".rstrip() for e in damaged]


def _outlook(checkup: Checkup) -> str:
    if checkup.whole is None:
        return "No version of it is intact. Restore the files from a backup, or start the job anew with --fresh."
    if checkup.whole == checkup.newest:
        return "Its newest version is intact: it can continue."
    start = f"Version {checkup.whole} is" if checkup.whole >= 0 else "Its beginning is"
    return f"{start} the newest that is intact; the job was at {checkup.newest}. --repair resets the job to it."


def _repaired(session: Session, checkup: Checkup, write: Callable[[str], None]) -> bool:
    """Repair a job, and write what was repaired; return whether it is intact now."""
    try:
        done = session.repair(checkup.job)
    except SqlStreamError as error:
        write(error.render())
        return False
    write(f'job "{checkup.job}" is repaired. {" ".join(done)}')
    return not any(again.damaged for again in session.check(checkup.job))


def _savepoint_lines(checkup: SavepointCheckup, root: str) -> list[str]:
    if checkup.unreadable is not None:
        return [f'savepoint "{checkup.name}" was not checked: {checkup.unreadable}']
    if not checkup.damaged:
        return []
    outlook = "No job can go on from it. --repair takes files with rows from the job, if that still has them."
    return [f'savepoint "{checkup.name}" is damaged:', *_files(checkup.damaged, root), f"  {outlook}"]


def _savepoint_repaired(session: Session, checkup: SavepointCheckup, write: Callable[[str], None]) -> bool:
    """Repair a savepoint, and write the result; return whether it is intact now."""
    try:
        damaged = repair_savepoint(session.warehouse, checkup.name)
    except SqlStreamError as error:
        write(error.render())
        return False
    if not damaged:
        write(f'savepoint "{checkup.name}" is repaired: the job had its files.')
        return True
    count = "1 file" if len(damaged) == 1 else f"{len(damaged)} files"
    write(
        f'savepoint "{checkup.name}" cannot be repaired: of {count} there is no other copy. Restore it from a backup, or'
        f" drop the savepoint: sqlstream drop --savepoint {checkup.name}"
    )
    return False
