"""INSERT statements of many rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

# The usual length of a statement. Longer ones are hardly faster, and the server keeps each in memory.
_BYTES = 1 << 20


class RowTooLong(Exception):
    """A row that does not fit into a statement."""


def insert_statements(head: bytes, rows: pa.Array, longest: int) -> Iterator[bytes]:
    """Yield INSERT statements of a head and rows, texts such as `(1, 'a'),`: each of about 1 MiB, and at most `longest` bytes.

    Raises RowTooLong for a row that does not fit into a statement of its own.

    >>> rows = pa.array(["(1),", "(2),", "(3),"])
    >>> list(insert_statements(b"INSERT INTO t VALUES ", rows, 30))
    [b'INSERT INTO t VALUES (1),(2)', b'INSERT INTO t VALUES (3)']
    """
    texts = rows.cast(pa.large_string())
    _, offsets, text = texts.buffers()
    if text is None or not len(texts):
        return
    # The rows of a column are contiguous in memory: a slice between two of them has all rows of a statement.
    starts = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    memory, first, room = memoryview(text), 0, min(_BYTES, longest - len(head) - 1)
    while first < len(texts):
        last = int(np.searchsorted(starts, starts[first] + room, side="right")) - 1
        if last <= first:
            last = first + 1
            size = int(starts[last] - starts[first]) + len(head)
            if size > longest - 1:
                raise RowTooLong(
                    f"a row takes {size:,} bytes in SQL, and max_allowed_packet of the server is {longest:,}"
                )
        yield head + bytes(memory[starts[first] : starts[last] - 1])
        first = last
