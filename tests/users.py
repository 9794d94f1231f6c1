"""Users who must not write everywhere: root may, so its tests run programs as a user who is nobody.

That user may read whatever root may: the interpreter of a virtual environment and the folders of tests can be root's alone. What
it may write is a matter of permissions.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

# The user of programs that must not write everywhere; None if the user of the tests is such a one.
OTHER: Final = 65_534 if os.geteuid() == 0 else None

_KEEP_CAPABILITIES, _AMBIENT, _RAISE = 8, 47, 2
_READ_AND_SEARCH = 2
_THIRD_VERSION = 0x20080522


class _Head(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def become(user: int, *, reads: bool = True) -> None:
    """Go on as another user, who may read all files, also in programs that this process starts. Only root can do that.

    Without `reads`, permissions bind the user when files are read, too: imported modules are all that there is.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"{name} failed")

    call("prctl", _KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    if not reads:
        call("capset", ctypes.byref(_Head(_THIRD_VERSION, 0)), (_Sets * 2)())
        return
    sets = (_Sets * 2)(_Sets(*[1 << _READ_AND_SEARCH] * 3), _Sets())
    call("capset", ctypes.byref(_Head(_THIRD_VERSION, 0)), sets)
    call("prctl", _AMBIENT, _RAISE, _READ_AND_SEARCH, 0, 0)


def own(folder: Path) -> Path:
    """Give a folder, and what is in it, to the user of programs that must not write everywhere; return it."""
    if OTHER is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, OTHER, OTHER)
    return folder


@contextlib.contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Let nobody but root write into a folder, and what is in it, inside of the context. Files may come and go meanwhile."""
    _change(folder, lambda mode: mode & ~0o222)
    try:
        yield
    finally:
        _change(folder, lambda mode: mode | stat.S_IWUSR)


def _change(folder: Path, new: Callable[[int], int]) -> None:
    # From above: nothing new comes into folders that cannot be written.
    for path, _, files in os.walk(folder):
        for name in ("", *files):
            with contextlib.suppress(FileNotFoundError):
                one = Path(path, name)
                one.chmod(new(stat.S_IMODE(one.stat().st_mode)))


def home(folder: Path) -> dict[str, str]:
    """Return the environment of a program with a home and a folder for temporary files of its own, below a folder."""
    places = {name: folder / name.lower() for name in ("HOME", "TMPDIR")}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
        own(place)
    return {**os.environ, **{name: str(place) for name, place in places.items()}}
