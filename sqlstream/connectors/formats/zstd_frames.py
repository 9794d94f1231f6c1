"""Checks whether files that zstd has compressed are complete: DuckDB's readers read a truncated one without an error."""

from __future__ import annotations

from typing import IO

_MAGIC, _SKIPPABLE = 0xFD2FB528, 0x184D2A50
# How many bytes a dictionary's id has, and the content's size, by two bits of a frame's descriptor.
_ID_BYTES, _SIZE_BYTES = (0, 1, 2, 4), (0, 2, 4, 8)
_RLE, _RESERVED = 1, 3
_FIRST = (_MAGIC, *range(_SKIPPABLE, _SKIPPABLE + 16))


def frames_fault(path: str) -> str | None:
    """Return the reason why a file is not a sequence of complete frames (RFC 8878); None if it is one.

    It reads the headers of blocks, not their content. Raises OSError.
    """
    with open(path, "rb") as file:
        end = file.seek(0, 2)
        file.seek(0)
        if _number(file, 4) not in _FIRST:
            return "it has no header of zstd"
        file.seek(0)
        while file.tell() < end:
            if not _skip_frame(file) or file.tell() > end:
                return "it is truncated"
    return None


def _skip_frame(file: IO[bytes]) -> bool:
    """Skip the next frame; return False if the bytes are no complete frame."""
    magic = _number(file, 4)
    if magic is not None and magic & ~0xF == _SKIPPABLE:
        size = _number(file, 4)
        return size is not None and file.seek(size, 1) >= 0
    descriptor = _number(file, 1)
    if magic != _MAGIC or descriptor is None:
        return False
    is_single, has_checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    # A single segment has no window, and always a size.
    size_bytes = _SIZE_BYTES[descriptor >> 6] or is_single
    file.seek(1 - is_single + _ID_BYTES[descriptor & 3] + size_bytes, 1)
    while (block := _number(file, 3)) is not None:
        kind = block >> 1 & 3
        if kind == _RESERVED:
            return False
        file.seek(1 if kind == _RLE else block >> 3, 1)
        if block & 1:
            file.seek(4 * has_checksum, 1)
            return True
    return False


def _number(file: IO[bytes], size: int) -> int | None:
    """Return the next `size` bytes as a number; None if the file ends before."""
    data = file.read(size)
    return int.from_bytes(data, "little") if len(data) == size else None
