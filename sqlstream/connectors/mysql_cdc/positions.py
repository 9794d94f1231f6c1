"""Places in a binary log as numbers, which grow: the number of a file, and an offset in it."""

from __future__ import annotations

# Files begin with four bytes that are no event.
FIRST = 4


def as_position(file: int, offset: int) -> int:
    """Return a position as a number.

    >>> as_position(3, 4)
    12884901892
    """
    return (file << 32) + offset


def file_of(position: int) -> int:
    """Return the number of the file of a position."""
    return position >> 32


def offset_of(position: int) -> int:
    """Return the offset of a position in its file."""
    return position & 0xFFFFFFFF


def file_name(base: str, number: int) -> str:
    """Return the name of a log file, as servers number them.

    >>> file_name("binlog", 7)
    'binlog.000007'
    """
    return f"{base}.{number:06d}"


def numbered(name: str) -> tuple[str, int]:
    """Return the base and the number in the name of a log file. Raises ValueError if it has none.

    >>> numbered("mysql-bin.000012")
    ('mysql-bin', 12)
    """
    base, _, number = name.rpartition(".")
    return base, int(number)


def as_text(base: str, position: int) -> str:
    """Return a place for people.

    >>> as_text("binlog", as_position(7, 325))
    'binlog.000007:325'
    """
    return f"{file_name(base, file_of(position))}:{offset_of(position)}"
