"""What sources have in common that hand out values, each a row as a format writes it: messages of a queue, lines of a file."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import IGNORE, Column, Table
from sqlstream.connectors.formats.malformed import MalformedRow, format_of, skip_hint, skips
from sqlstream.connectors.formats.reading import marked_changes
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.interface import NumberedRows, ReadContext, TableSource
from sqlstream.connectors.read_plan import VALUE, WRONG, ReadPlan
from sqlstream.duck import databases
from sqlstream.duck.internal_columns import MODIFIED, PATH, ROW, internal
from sqlstream.duck.sql import quote_name
from sqlstream.duck.text_files import shorten
from sqlstream.errors import DataError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Where a value stands: in what (a partition, a file), and its number there.
PLACE, NUMBER = internal("place"), internal("number")
# The `order` of a source whose values come in the order of their numbers.
BY_NUMBER = (ROW,)
_MALFORMED = "a value is malformed"
_numbers = itertools.count()


class ValueRows(TableSource):
    """A table whose rows are values of a format: `json`, `csv` or `debezium-json`."""

    # What the numbers of values are called in messages.
    number_name = "offset"

    @abstractmethod
    def values(self, splits: Sequence[Any]) -> pa.Table:
        """Return the values of some splits, in their order.

        The columns are VALUE (text or bytes, NULL for one that is no row), PLACE (text), NUMBER (a whole number) and one for
        each key of METADATA that the connector has, by the key.
        """

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        return self._plan(con, splits, self.table)

    def _plan(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], table: Table) -> ReadPlan:
        marked = self._marked(con, splits, table)
        names = ", ".join(quote_name(c.name) for c in table.physical)
        if skips(table):
            return ReadPlan.of_marked(f"SELECT {names}, {WRONG} FROM ({marked})", keep=True)
        whole = f"CASE WHEN {WRONG} IS NULL THEN true ELSE error('{_MALFORMED}') END"
        return ReadPlan(f"SELECT {names} FROM ({marked}) WHERE {whole}", keep=True)

    def _marked(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], table: Table) -> str:
        """Return the SELECT of all rows, with PLACE, NUMBER, the text as VALUE, and why one is malformed."""
        values = self.values(splits)
        relation = f"_values_{next(_numbers)}"
        con.register(relation, values)
        text = f"TRY(decode({VALUE}))" if _is_binary(values) else VALUE
        texts = f"(SELECT * REPLACE ({text} AS {VALUE}) FROM {relation} WHERE {VALUE} IS NOT NULL)"
        read_values = FORMATS[format_of(table)].read_values
        assert read_values is not None
        kept = [quote_name(name) for name in values.column_names]
        # Of its columns and a value's own, none may have the name of another one.
        aliases = {name: f"_kept_{number}" for number, name in enumerate(kept) if name != quote_name(VALUE)}
        renamed = ", ".join([VALUE, *(f"{name} AS {alias}" for name, alias in aliases.items())])
        named = f"(SELECT {renamed}, {VALUE} AS _kept_value FROM {texts})"
        rows = read_values(con, named, table, table.stored, [*aliases.values(), "_kept_value"])
        items = [f"{_told(c, aliases)} AS {quote_name(c.name)}" for c in table.physical if c not in table.stored]
        items += [quote_name(c.name) for c in table.stored]
        places = f"{aliases[quote_name(PLACE)]} AS {PLACE}, {aliases[quote_name(NUMBER)]} AS {NUMBER}, _kept_value AS {VALUE}"
        found = f"SELECT {', '.join([*items, WRONG])}, {places} FROM {rows}"
        return marked_changes(table, ReadPlan.of_marked(found)) if table.has_changes else found

    # -- malformed values

    def explained(self, error: duckdb.Error, splits: Sequence[Any]) -> DataError | None:
        found = next(self.malformed_rows(splits), None) if _MALFORMED in str(error) else None
        return self.malformed(found) if found else None

    def malformed(self, row: MalformedRow) -> DataError:
        message = (
            f'the value at {self.number_name} {row.number} of {row.path} of table "{self.table.name}" is malformed'
        )
        return DataError(message, detail=f"{row.reason}: {shorten(row.text)}", hint=skip_hint(self.table))

    def malformed_rows(self, splits: Sequence[Any]) -> Iterator[MalformedRow]:
        with databases.passing() as con:
            marked = self._marked(con, splits, self.table)
            items = f"{PLACE}, {NUMBER}, {WRONG}, coalesce({VALUE}, '')"
            found = con.execute(f"SELECT {items} FROM ({marked}) WHERE {WRONG} IS NOT NULL ORDER BY ALL").fetchall()
            yield from (MalformedRow(*row) for row in found)

    def numbered(self, con: duckdb.DuckDBPyConnection, split: Any) -> NumberedRows:
        added = (c for c in (PATH, ROW) if c not in self.table.columns)
        skipping = replace(
            self.table,
            columns=(*self.table.columns, *added),
            options={**self.table.options, f"{format_of(self.table)}.{IGNORE}": "true"},
        )
        plan = self._plan(con, [split], skipping)
        plan.take(con)

        def places(counts: Sequence[int]) -> Mapping[int, MalformedRow]:
            # A row is counted from 1, its number as it is.
            wanted = {n - 1 for n in counts}
            values = self.values([split]).select([PLACE, NUMBER, VALUE]).to_pylist()
            rows = ((v[NUMBER], MalformedRow(v[PLACE], v[NUMBER], "", _text(v[VALUE]))) for v in values)
            return {number + 1: row for number, row in rows if number in wanted}

        return NumberedRows(plan, places)

    def name_of(self, split: Any) -> str:
        return f'table "{self.table.name}"'


def _is_binary(values: pa.Table) -> bool:
    return "binary" in str(values.schema.field(VALUE).type)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _told(column: Column, aliases: Mapping[str, str]) -> str:
    """Return what a column of METADATA holds, as SQL."""
    own = {str(MODIFIED.metadata): "0", str(PATH.metadata): PLACE, str(ROW.metadata): NUMBER}
    found = own.get(str(column.metadata), str(column.metadata))
    return f"CAST({found if found == '0' else aliases[quote_name(found)]} AS {column.type})"
