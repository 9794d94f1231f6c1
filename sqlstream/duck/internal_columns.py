"""Columns that travel beside those of a user: what a row changes, its place in its file, how often it is there."""

from __future__ import annotations

from collections.abc import Iterable

from sqlstream.catalog import Column

# The names of our own begin so, and no column of a user does: whoever writes such a name gets an error.
INTERNAL = "__sqlstream_"


def internal(name: str) -> str:
    """Return a name of our own: of a column, a table, or a parameter beside those of a user."""
    return INTERNAL + name


CHANGE = Column(internal("change"), "VARCHAR")


MODIFIED = Column(internal("mtime"), "BIGINT", metadata="order.mtime")


PATH = Column(internal("path"), "VARCHAR", metadata="file.path")


ROW = Column(internal("row"), "BIGINT", metadata="row-number")


# The name of the partition that a row comes from, where each has a watermark of its own.
PARTITION = Column(internal("partition"), "VARCHAR", metadata="partition-name")


# The order in which the rows of a batch stand: by these columns.
PLACE = (MODIFIED, PATH, ROW)


ADDS = f"{CHANGE.name} IN ('I', 'U')"


def last_of_keys(keys: Iterable[str], changes: str) -> str:
    """Return the SELECT of the last change of every key; both `keys` and `changes`, which goes behind FROM, are SQL."""
    order = ", ".join(f"{c.name} DESC" for c in PLACE)
    return f"SELECT * FROM {changes} QUALIFY row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {order}) = 1"


# The columns that the view of a state has beside those of the result: when a row last came for the key, and when the key is
# forgotten.
UPDATED_AT, EXPIRES_AT = "_updated_at", "_expires_at"
