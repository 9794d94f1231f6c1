"""A query as one batch in DuckDB: the answer over all rows at once, to print, and to compare what a job wrote with."""

from __future__ import annotations

from sqlstream.physical.batch.query import BatchQuery
from sqlstream.physical.batch.rows import CannotVerify, LeftOut

__all__ = ["BatchQuery", "CannotVerify", "LeftOut"]
