"""Parquet files that tasks write for a lakehouse. Their names contain job and batch, which identifies uncommitted files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlstream.duck.sql import Select, quote_name, quote_text

if TYPE_CHECKING:
    import duckdb

_NAME = re.compile(r"part-(?P<tag>[0-9a-f]+)-(?P<batch>\d{10})-")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file: its `path` below the folder that it was written into, its `size` in bytes, its `partition` values.

    `statistics` are DuckDB's: by quoted column name, texts such as `min`, `max` and `null_count`.
    """

    path: str
    rows: int
    size: int
    statistics: Mapping[str, Mapping[str, str]]
    partition: Mapping[str, str | None]


def write_files(
    con: duckdb.DuckDBPyConnection,
    select: Select,
    folder: str,
    *,
    tag: str,
    batch: int,
    partitions: Sequence[str] = (),
    with_partitions: bool = False,
) -> Iterator[WrittenFile]:
    """Write rows into a local folder, one file or some per partition; yield each file that has rows.

    `partitions` are the partition columns, which files contain only `with_partitions`. Files have names as `file_name` returns.
    """
    name = file_name(tag, batch, str(uuid4()))
    options, path = ["FORMAT parquet", "COMPRESSION zstd", "RETURN_STATS"], f"{folder}/{name}"
    if partitions:
        options.append(f"PARTITION_BY ({', '.join(map(quote_name, partitions))})")
        options.append(f"FILENAME_PATTERN {quote_text(name.removesuffix('.parquet') + '-{i}')}")
        options += ["OVERWRITE_OR_IGNORE", f"WRITE_PARTITION_COLUMNS {with_partitions}"]
        path = folder
    os.makedirs(folder, exist_ok=True)
    copied = con.execute(f"COPY ({select}) TO {quote_text(path)} ({', '.join(options)})").fetchall()
    for file, rows, size, _, statistics, keys, *_ in copied:
        if rows:
            yield WrittenFile(os.path.relpath(file, folder), int(rows), int(size), statistics, keys or {})
        else:
            os.remove(file)


def file_name(tag: str, batch: int, unique: str) -> str:
    """Return a file name for a batch of the job with a tag.

    >>> file_name("0f3c", 12, "a7")
    'part-0f3c-0000000012-a7.parquet'
    """
    return f"part-{tag}-{batch:010d}-{unique}.parquet"


def is_uncommitted(name: str, tag: str, last: int) -> bool:
    """Whether a file name has the tag of a job, and a batch after `last`, the job's last committed batch."""
    match = _NAME.match(name)
    return match is not None and match["tag"] == tag and int(match["batch"]) > last
