"""Reads files as a declared table has them, as the tests of formats do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.faults import take, translate
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.reading import read
from sqlstream.errors import DataError

Con = duckdb.DuckDBPyConnection


def table(format: str, columns: dict[str, str], **options: str) -> Table:
    named = {f"{format}.{k.replace('_', '-')}": v for k, v in options.items()}
    every = tuple(Column(n, t) for n, t in columns.items())
    return Table("t", every, options={"connector": "filesystem", "path": "x", "format": format, **named})


def split(path: Path, rows: tuple[int, int] | None = None) -> FileSplit:
    size = path.stat().st_size if path.exists() else 1
    return FileSplit(str(path), size, 0, size, rows)


def rows(con: Con, declared: Table, *splits: FileSplit, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    return con.execute(read(con, splits, declared, columns).sql).fetchall()


def write(path: Path, text: str | bytes) -> FileSplit:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return split(path)


def failure(con: Con, declared: Table, *splits: FileSplit) -> DataError:
    """Return what a person sees when the splits cannot be read, wherever it comes up."""
    try:
        plan = read(con, splits, declared)
        con.execute(plan.sql).fetchall()
    except DataError as error:
        return error
    except duckdb.Error as error:
        if found := translate(error, splits, declared):
            return found
        raise
    raise AssertionError("nothing failed")


def skipping(con: Con, declared: Table, *splits: FileSplit) -> tuple[list[tuple[Any, ...]], int]:
    plan = take(con, splits, declared)
    return con.execute(f"FROM {plan.well_formed}").fetchall(), plan.skipped(con)


def parquet(path: Path, columns: dict[str, pa.Array], **options: Any) -> FileSplit:
    pq.write_table(pa.table(columns), path, **options)
    return split(path)
