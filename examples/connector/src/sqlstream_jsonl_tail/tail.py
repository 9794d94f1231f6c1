"""A file that grows by whole lines: which of its bytes are new, and whether it is still the same file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import BinaryIO

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Tail:
    """What a file holds now. `identity` is a digest of its first line: a file that only grows keeps that."""

    path: str
    identity: str
    size: int


def look(path: str) -> Tail | None:
    """Return what a file holds; None while it does not exist or has no whole line."""
    try:
        with open(path, "rb") as file:
            first = file.readline()
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return None
    return Tail(path, blake2b(first, digest_size=8).hexdigest(), size) if first.endswith(b"\n") else None


def whole_lines(path: str, start: int, limit: int) -> int:
    """Return where the last line ends that begins at `start` or later and ends at `limit` or before; `start` if none does."""
    with open(path, "rb") as file:
        end = limit
        while end > start:
            begin = max(start, end - _BLOCK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return start


def line_end(path: str, start: int, limit: int) -> int:
    """Return where the first line ends that begins at `start`; `limit` if it does not end before."""
    with open(path, "rb") as file:
        file.seek(start)
        for block in _blocks(file):
            found = block.find(b"\n")
            if found >= 0:
                return min(limit, start + found + 1)
            start += len(block)
    return limit


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def lines(path: str, start: int, end: int) -> Iterator[tuple[int, bytes]] | None:
    """Return the lines between two ends of lines, each with its offset; None when the file has not so many bytes."""
    with open(path, "rb") as file:
        file.seek(start)
        content = file.read(end - start)
    return _numbered(content, start) if len(content) == end - start else None


def _numbered(content: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    for line in content.split(b"\n")[:-1]:
        yield offset, line
        offset += len(line) + 1
