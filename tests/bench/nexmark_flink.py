"""The queries of examples/nexmark on Flink, over the same files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import sqlglot
from sqlglot import exp, transforms

from sqlstream.connectors.nexmark.source import COLUMNS
from tests.bench.flink import Flink, flink_files, interleave
from tests.bench.nexmark import NexmarkRun, Task, kept, script


def measure(flink: Flink, task: Task, system: str, log: Path) -> NexmarkRun:
    """Run a query over all files; the rows as Flink reads them are kept beside the files."""
    files = sorted(str(path) for path in Path(task.data).glob("*.parquet"))
    dealt = kept(Path(f"{task.data}-flink"), lambda folder: interleave(files, folder, task.cores))
    try:
        run = flink.run(list(_statements(task, dealt)), system, task.cores, Path(task.folder) / "job", log)
    except subprocess.CalledProcessError:
        return NexmarkRun([], 0)
    return NexmarkRun([(point.rows, point.seconds) for point in run.progress(task.events)], run.whole_seconds)


def _statements(task: Task, data: Path) -> Iterator[str]:
    columns = ", ".join(f"`{column.name}` {_flink_type(column.type)}" for column in COLUMNS)
    text = script(task.query, columns, flink_files(data))
    text = text.replace("${NEXMARK_OUT:-.demo/nexmark}", f"file://{task.folder}/out")
    for statement in re.sub(r"--[^\n]*", "", text).split(";"):
        if statement.strip():
            yield _without_qualify(statement.strip())


def _flink_type(type: str) -> str:
    """Return a type of the events as Flink writes it.

    >>> _flink_type('STRUCT("id" BIGINT, "name" VARCHAR, "dateTime" TIMESTAMP)')
    'ROW<`id` BIGINT, `name` STRING, `dateTime` TIMESTAMP(3)>'
    """
    type = type.replace("VARCHAR", "STRING").replace("TIMESTAMP", "TIMESTAMP(3)")
    return re.sub(r"STRUCT\((.*)\)", r"ROW<\1>", type).replace('"', "`")


def _without_qualify(statement: str) -> str:
    """Return a statement with subqueries for QUALIFY, which Flink does not know."""
    if "QUALIFY" not in statement:
        return statement
    insert, query = statement.split("\n", 1)
    tree = sqlglot.parse_one(query, read="spark")
    selects = [select for select in tree.find_all(exp.Select) if select.args.get("qualify")]
    for select in selects:
        changed = transforms.eliminate_qualify(select.copy())
        tree = changed if select is tree else tree
        select.replace(changed)
    return f"{insert}\n{tree.sql(dialect='spark')}"
