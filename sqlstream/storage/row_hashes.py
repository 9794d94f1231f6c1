"""Hashes of rows in memory, computed without a query: a row takes microseconds. They are not stored.

Values that SQL treats as equal have equal hashes, in columns of one type; other values mostly have different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

RowHashes: TypeAlias = npt.NDArray[np.uint64]

_PRIME, _NULL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x632BE59BD9B4E019)
_WORD = 8
# Of a long text, its length and this many words count.
_WORDS = 32


def can_hash(type: pa.DataType) -> bool:
    """Return whether values of a type can be hashed: numbers, booleans, times, text, bytes, and structs of these."""
    if pa.types.is_struct(type):
        return type.num_fields > 0 and all(can_hash(field.type) for field in type)
    return bool(_is_text(type) or pa.types.is_primitive(type) or pa.types.is_decimal128(type))


def hashed_rows(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int, hashes: RowHashes | None = None) -> RowHashes:
    """Return the hash of each row over some columns; `hashes` are the rows' hashes over columns before these."""
    row_hashes = np.zeros(rows, dtype=np.uint64) if hashes is None else hashes
    for column in columns:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        row_hashes = _mixed(row_hashes * _PRIME ^ _hashed(whole))
    return row_hashes


def _hashed(column: pa.Array) -> RowHashes:
    if pa.types.is_struct(column.type):
        hashes = hashed_rows(column.flatten(), len(column))
    elif _is_text(column.type):
        hashes = _texts(column)
    else:
        hashes = _mixed(_numbers(column))
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes) if column.null_count else hashes


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_binary(type))


def _mixed(hashes: RowHashes) -> RowHashes:
    hashes = (hashes ^ (hashes >> np.uint64(32))) * _PRIME
    return hashes ^ (hashes >> np.uint64(29))


def _numbers(column: pa.Array) -> RowHashes:
    """Return values of a fixed size as integers."""
    if pa.types.is_floating(column.type):
        # Zero has one hash, whatever its sign, and so has what is no number.
        values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    if pa.types.is_decimal128(column.type):
        halves = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset :][: 2 * len(column)]
        return _mixed(halves[::2]) ^ halves[1::2]
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    signed = column.view(f"int{column.type.bit_width}")
    integers: RowHashes = pc.fill_null(signed, 0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return integers


def _texts(column: pa.Array) -> RowHashes:
    """Return hashes of texts or bytes: word by word, for all rows that have such a word."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
    begins, lengths = ends[:-1], np.diff(ends)
    hashes = lengths.astype(np.uint64)
    if not data or not lengths.any():
        return _mixed(hashes)
    # Rows of the words that begin at each byte; what is behind the end of a text is cut off.
    span = np.frombuffer(data, np.uint8)[begins[0] : ends[-1]]
    padded = np.concatenate((span, np.zeros(_WORD, np.uint8)))
    words = np.lib.stride_tricks.sliding_window_view(padded, _WORD)
    for word in range(min(_WORDS, -(-int(lengths.max()) // _WORD))):
        rows = np.flatnonzero(lengths > word * _WORD)
        values = words[begins[rows] - begins[0] + word * _WORD].view(np.uint64).ravel()
        unused = np.maximum((word + 1) * _WORD - lengths[rows], 0).astype(np.uint64) * np.uint64(8)
        hashes[rows] = _mixed(hashes[rows] * _PRIME ^ (values << unused))
    return _mixed(hashes)
