"""`sqlstream check`: what is damaged, what it is for, and what a repair makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable

from sqlstream.errors import SqlStreamError
from sqlstream.session.session import Session
from sqlstream.storage.check import Checkup


def checked(session: Session, job: str | None, *, repair: bool, write: Callable[[str], None]) -> bool:
    """Write a line for each damaged file of a job, or of all; return whether none is left."""
    whole = True
    found = session.check(job)
    for checkup in found:
        for line in _lines(checkup, session.warehouse.root):
            write(line)
        if checkup.damaged:
            whole = repair and _repaired(session, checkup, write) and whole
    read = [checkup for checkup in found if checkup.unreadable is None]
    if not any(checkup.damaged for checkup in read) and (read or not found):
        write(f'job "{read[0].job}" is intact' if len(read) == 1 else f"{len(read)} jobs are intact")
    return whole


def _lines(checkup: Checkup, root: str) -> list[str]:
    if checkup.unreadable is not None:
        return [f"{checkup.unreadable}: its files were not checked"]
    if not checkup.damaged:
        return []
    lines = [f'job "{checkup.job}" is damaged:']
    for error in checkup.damaged:
        lines.append(f"  {os.path.relpath(error.path, root)} {error.fault}. {error.detail or ''}".rstrip())
    return [*lines, f"  {_outlook(checkup)}"]


def _outlook(checkup: Checkup) -> str:
    if checkup.whole is None:
        return "No version of it is intact. Restore the files from a backup, or start the job anew with --fresh."
    if checkup.whole == checkup.newest:
        return "Its newest version is intact: it can continue."
    start = f"Version {checkup.whole} is" if checkup.whole >= 0 else "Its beginning is"
    return f"{start} the newest that is intact; the job was at {checkup.newest}. --repair resets the job to it."


def _repaired(session: Session, checkup: Checkup, write: Callable[[str], None]) -> bool:
    """Repair a job, and write what was done; return whether it is whole now."""
    try:
        done = session.repair(checkup.job)
    except SqlStreamError as error:
        write(error.render())
        return False
    write(f'job "{checkup.job}" is repaired. {" ".join(done)}')
    return not any(again.damaged for again in session.check(checkup.job))
