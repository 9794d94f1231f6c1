"""Python functions in SQL: `@udf`, `@udtf`, `@udaf` and `@process` declare them, and DuckDB or an operator calls them."""

from sqlstream.functions.declare import declare
from sqlstream.functions.decorators import udf, udtf
from sqlstream.functions.load import load
from sqlstream.functions.registration import recover, register, register_for_queries

__all__ = ["declare", "load", "recover", "register", "register_for_queries", "udf", "udtf"]
