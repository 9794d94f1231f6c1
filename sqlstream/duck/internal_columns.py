"""Internal columns beside the columns of the user: the kind of change, the position in a file, the partition."""

from __future__ import annotations

from collections.abc import Iterable

from sqlstream.catalog import Column
from sqlstream.duck.sql import Condition, Relation, Select

# The prefix of internal names. A user's column with this prefix is an error.
INTERNAL = "__sqlstream_"


def internal(name: str) -> str:
    """Return the internal name of a column, a table or a parameter, which no user's name can equal."""
    return INTERNAL + name


# The kind of change: I (insert), U (row after an update), B (row before an update), D (delete).
CHANGE = Column(internal("change"), "VARCHAR")


MODIFIED = Column(internal("mtime"), "BIGINT", metadata="order.mtime")


PATH = Column(internal("path"), "VARCHAR", metadata="file.path")


ROW = Column(internal("row"), "BIGINT", metadata="row-number")


# The name of a row's partition, for sources whose partitions have their own watermarks.
PARTITION = Column(internal("partition"), "VARCHAR", metadata="partition-name")


# The position of a row in the order of arrival, over all batches and scans of a job: of two rows, the one with the greater number
# came later. Workers compute it from the position of the row's split in the descriptor, for tables that have this column.
ARRIVED = Column(internal("arrived"), "BIGINT", metadata="row.arrived")


# The columns that order the rows of a batch.
FILE_ORDER = (MODIFIED, PATH, ROW)


# The condition that a change adds a row.
ADDS = Condition(f"{CHANGE.name} IN ('I', 'U')")


def last_of_keys(keys: Iterable[str], changes: Relation) -> Select:
    """Return the last change of every key in a batch; `keys` are SQL."""
    order = ", ".join(f"{c.name} DESC" for c in FILE_ORDER)
    last = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {order}) = 1"
    return Select(f"SELECT * FROM {changes} QUALIFY {last}")


# Columns of a state view, after the columns of the result: when the last row of the key arrived, and when the key expires.
UPDATED_AT, EXPIRES_AT = "_updated_at", "_expires_at"
