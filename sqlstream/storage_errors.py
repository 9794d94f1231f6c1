"""Errors of the storage for people: a full disk, a folder that cannot be written or read, a file in the way."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
from collections.abc import Iterator

from sqlstream.errors import JobError, NotWritableError, SqlStreamError, UsageError

_ELSEWHERE = "choose another folder (--warehouse names the warehouse)"


@contextlib.contextmanager
def storage_errors(path: str, *, writes: bool = False) -> Iterator[None]:
    """Turn OSErrors, such as a full disk, into errors for people that name the path; FileNotFoundError passes through.

    With `writes`, the block writes or deletes the local file or folder at the path, or what is in it.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise storage_error(path, error, writes=writes) from error


def storage_error(path: str, error: OSError, *, writes: bool = False) -> SqlStreamError:
    """Return the error for people about an OSError of the storage at a path."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return JobError(
                f'no space is left to write "{path}"',
                hint="Free some space and run the job again; it continues after its last committed batch.",
            )
        case errno.EROFS:
            hint = f"Mount it so that it can be written, or {_ELSEWHERE}."
            return _not_writable(_refusing(path) or path, "It is on a file system that is mounted read-only.", hint)
        case errno.EACCES | errno.EPERM:
            if writes and (location := _refusing(path)) is not None:
                hint = f"Run it as a user who may write there, or {_ELSEWHERE}."
                return _not_writable(location, _owner(location), hint)
            return UsageError(f'no permission to use "{path}"', hint=f"Give this user access, or {_ELSEWHERE}.")
        case errno.ENOTDIR | errno.EEXIST:
            return UsageError(f'"{path}" lies below a file, not a folder')
    return JobError(f'"{path}" cannot be read or written', detail=error.strerror or str(error))


def make_folder(path: str) -> None:
    """Create a folder and its parents. Raises UsageError where that is impossible."""
    with storage_errors(path, writes=True):
        try:
            os.makedirs(path, exist_ok=True)
        except FileNotFoundError as error:
            # Some file systems, such as /proc, have no new folders.
            hint = "Choose another folder with --warehouse."
            raise UsageError(f'the folder "{path}" cannot be made', detail=error.strerror, hint=hint) from error


def _not_writable(location: str, why: str | None, hint: str) -> NotWritableError:
    what = "folder" if os.path.isdir(location) else "file"
    return NotWritableError(f'the {what} "{location}" cannot be written', detail=why, hint=hint)


def _refusing(path: str) -> str | None:
    """Return the folder or file whose permissions prevent this process from writing a path; None if it may write it."""
    folder = os.path.dirname(path)
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        return folder
    return path if os.path.exists(path) and not os.access(path, os.W_OK) else None


def _owner(location: str) -> str | None:
    """Return a sentence about who owns a folder or a file; None if it is the user of this process."""
    owner, own = os.stat(location).st_uid, os.geteuid()
    return None if owner == own else f"It belongs to {_name(owner)}, and this process runs as {_name(own)}."


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        # A container need not know the users of a folder that it shares.
        return f"user {user}"
