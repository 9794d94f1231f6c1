"""Scripts as people write them for Flink, with rows and results.

`NAME.sql` is the script, `NAME.rows` has rows and expected results as verbs of golden scripts (see `tests/golden.py`). Nothing in
a script is replaced but where data comes from and goes: it is compiled with its connectors, then a table is fed by the test, or
kept in the warehouse. Only a table of a connector that does not exist here is declared without it, before it is compiled. Rows
of a table with changes begin with the kind of change.

What does not run yet is in `standing.json`, with the words of the refusals; so are scripts whose results are others than Flink's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlstream.catalog import OP_COLUMN, Column, Table
from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.connectors.registry import exists
from sqlstream.errors import SourceText
from sqlstream.session.porting import PortedScript, port
from sqlstream.sql.nodes import CreateTable, CreateTableAs, Insert, OptionValue, Select, Statement
from sqlstream.testing.project_tables import without_connector
from tests.golden import InProcess, Record, execute, parse
from tests.saved_streams import SavedStream

FOLDER = Path(__file__).parent
STANDING = FOLDER / "standing.json"
NAMES = sorted(path.stem for path in FOLDER.glob("*.sql"))
_OPERATION = "__op"


def source(name: str) -> SourceText:
    """Return a script of the corpus."""
    return SourceText(f"{name}.sql", (FOLDER / f"{name}.sql").read_text())


def ported(name: str) -> PortedScript:
    """Return what `sqlstream port` says about a script."""
    compiler = Compiler()
    try:
        return port(source(name), compiler)
    finally:
        compiler.close()


def standing() -> dict[str, dict[str, list[str]]]:
    """Return what does not run yet: refusals by script, and scripts with other results."""
    found: dict[str, dict[str, list[str]]] = json.loads(STANDING.read_text())
    return found


def refusals(result: PortedScript) -> list[str]:
    """Return the words of what a script's statements are refused with; a foreign connector is one, too."""
    return [
        f"{one.outcome}: {one.problem.message}"
        for one in result.statements
        if one.problem is not None and one.outcome in ("refused", "connector")
    ]


class FlinkStream(SavedStream):
    """A stream of a script for Flink, whose tables all lose their connectors once they are compiled with them."""

    def __init__(self, script: str, **others: Any):
        # Tables as the script declares them.
        self._originals: dict[str, Table] = {}
        super().__init__(script, **others)

    def _replaced(self, table: Table) -> Table:
        self._originals[table.name.lower()] = table
        plain = without_connector(table) if table.connector is not None else table
        if not table.has_changes or plain is table:
            return plain
        # The connector tells the kinds of changes apart: a column that no query sees does.
        operation = Column(_OPERATION, "VARCHAR")
        options = {**plain.options, OP_COLUMN: _OPERATION}
        return replace(plain, columns=(operation, *plain.columns), options=options, problem=None)

    def compile(self, statement: Statement) -> Compiled | None:
        if isinstance(statement, Insert) and (statement.partition or statement.overwrites):
            return self._into_partition(statement)
        base = statement.like.table.text if isinstance(statement, CreateTable) and statement.like is not None else ""
        fed, original = self.compiler.catalog.relation(base), self._originals.get(base.lower())
        if original is None or not isinstance(fed, Table):
            return super().compile(own(statement))
        # LIKE takes what the table was declared with.
        self.compiler.catalog.add(original)
        try:
            return super().compile(own(statement))
        finally:
            self.compiler.catalog.add(fed)

    def _into_partition(self, statement: Insert) -> Compiled | None:
        """Compile an INSERT into a table that has lost its partitions, and has no rows yet that one could overwrite."""
        catalog, name = self.compiler.catalog, statement.target.text
        table, original = catalog.relation(name), self._originals[name.lower()]
        assert isinstance(table, Table)
        catalog.add(replace(table, partitioned_by=original.partitioned_by))
        try:
            return super().compile(replace(statement, overwrites=False))
        finally:
            catalog.add(table)


def own(statement: Statement) -> Statement:
    """Return a statement; a table whose connector does not exist here is without it, or has that of a changelog.

    So is a table that is made of a query; and where rows are fed by the test, no hint has options of a connector.
    """
    if isinstance(statement, CreateTableAs):
        return replace(statement, table=replace(statement.table, options={}))
    if isinstance(statement, Insert | Select):
        for read in statement.query.find_all(exp.Table):
            read.set("table_options", None)
        return replace(statement, options=None) if isinstance(statement, Insert) else statement
    if not isinstance(statement, CreateTable):
        return statement
    name = statement.options.get("connector") or statement.options.get("connector.type")
    if name is None or (exists(name.value) and "connector" in statement.options):
        return statement
    if not name.value.endswith("-cdc"):
        return replace(statement, options={})
    span = statement.name.span
    texts = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "k:9092", "format": "debezium-json"}
    return replace(statement, options={key: OptionValue(text, span) for key, text in texts.items()})


class FlinkScript(InProcess):
    """Runs a script of the corpus in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.stream.close()
        self.stream = FlinkStream("", options={"parallelism.default": "3"}, parallelism=3)

    def output(self, job: str | None) -> list[tuple[object, ...]]:
        return self.stream.rows(job)


def results(name: str) -> Iterator[tuple[Record, list[str]]]:
    """Run a script over its rows; yield each record that shows something, and what it shows."""
    runner = FlinkScript()
    try:
        runner.stream.script(source(name).text, f"{name}.sql")
        [case] = parse(FOLDER / f"{name}.rows")
        for record in case.records:
            if (shown := execute(record, runner)) is not None:
                yield record, shown
    finally:
        runner.close()
