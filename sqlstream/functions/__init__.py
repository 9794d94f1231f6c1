"""Python functions in SQL: what `@udf` makes of them, and how they get into DuckDB."""

from sqlstream.functions.declare import declare, udf
from sqlstream.functions.duck import recover, register, register_for_queries
from sqlstream.functions.load import load

__all__ = ["declare", "load", "recover", "register", "register_for_queries", "udf"]
