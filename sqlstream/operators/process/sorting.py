"""Sorts rows by a whole number and a position with NumPy: several times as fast as ORDER BY, which compares rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# How many bits a key and a row's number may have together.
_BITS = 63


def sorted_by(rows: pa.Table, key: str, position: str) -> tuple[pa.Table, pa.Table] | None:
    """Return rows sorted by the columns `key` and `position`, and a table of the distinct keys, sorted.

    None if there are no rows, or the key is no signed integer, is NULL in a row, or has values too far apart.

    >>> rows, keys = sorted_by(pa.table({"k": [7, 5, 7], "o": [2, 3, 1], "x": ["a", "b", "c"]}), "k", "o")
    >>> rows["x"].to_pylist(), keys.to_pydict()
    (['b', 'c', 'a'], {'k': [5, 7]})
    """
    column = rows.column(key)
    if not rows.num_rows or column.null_count or not pa.types.is_signed_integer(column.type):
        return None
    keys: npt.NDArray[np.int64] = column.to_numpy().astype(np.int64, copy=False)
    positions = rows.column(position).to_numpy()
    arrived = np.arange(len(keys))
    if np.any(positions[1:] < positions[:-1]):
        arrived = np.argsort(positions, kind="stable")
        keys = keys[arrived]
    low, bits = int(keys.min()), len(keys).bit_length()
    if int(keys.max()) - low >= 1 << (_BITS - bits):
        return None
    # The key in the upper bits, the row's number in the lower ones: sorting these numbers sorts by both.
    both = (keys - low) << bits | np.arange(len(keys))
    both.sort()
    order = arrived[both & ((1 << bits) - 1)]
    numbers = both >> bits
    firsts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
    return rows.take(pa.array(order)), rows.select([key]).take(pa.array(order[firsts]))
