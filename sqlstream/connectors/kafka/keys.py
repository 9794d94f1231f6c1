"""Keys of messages: which columns of a table are in them, and in which format. The options are Flink's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlstream.catalog import OP_COLUMN, Column, Table
from sqlstream.connectors.formats.malformed import format_of
from sqlstream.connectors.formats.raw_codec import HINT, problem
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.formats.value_source import KeyLayout
from sqlstream.connectors.kafka.options import one_of
from sqlstream.connectors.options import TEXT, OptionType, TableOption, check_required
from sqlstream.errors import BindError, missing

UPSERT_KAFKA = "upsert-kafka"
ALL, EXCEPT_KEY = "ALL", "EXCEPT_KEY"
KEY_FORMATS = ("json", "csv", "raw", "avro", "avro-confluent", "protobuf", "protobuf-confluent")
VALUE_FORMATS = (*KEY_FORMATS, "debezium-json")


def _include(text: str) -> str:
    if text.upper() not in (ALL, EXCEPT_KEY):
        raise ValueError(f'"{text}" is neither {ALL} nor {EXCEPT_KEY}')
    return text.upper()


KEY_FORMAT = TableOption(
    "key.format",
    one_of(*KEY_FORMATS),
    "how the keys of messages are encoded; without it they are neither read nor written",
)
KEY_FIELDS = TableOption("key.fields", TEXT, "the columns that stand in the key, separated by `;`")
VALUE_FORMAT = TableOption("value.format", one_of(*VALUE_FORMATS), "another name of `format`", instead_of="format")
OPTIONS = (
    VALUE_FORMAT,
    KEY_FORMAT,
    KEY_FIELDS,
    TableOption("key.fields-prefix", TEXT, "what the names of these columns begin with, and fields of the key do not"),
    TableOption(
        "value.fields-include",
        OptionType(f"{ALL} or {EXCEPT_KEY}", _include),
        f"whether columns of the key stand in the value, too (`{ALL}`), or not (`{EXCEPT_KEY}`)",
        ALL,
    ),
)


def format_options(table: Table) -> Sequence[TableOption]:
    """Return the options of a table's formats under the names with the prefix `value.` or `key.`.

    They belong to the formats in `value.format` and `key.format`.
    """
    options: list[TableOption] = []
    for part, names in (("value", VALUE_FORMATS), ("key", KEY_FORMATS)):
        name = table.options.get(f"{part}.format", "").lower()
        if name in names:
            own = [o for o in FORMATS[name].options if o.name not in FORMATS[name].of_files]
            options += [replace(o, name=f"{part}.{o.name}") for o in own if o.name != OP_COLUMN]
            options += [o for o in own if o.name == OP_COLUMN and part == "value"]
    return options


def plain(table: Table) -> Table:
    """Return the table with `value.format` and the options of that format renamed to `format` and `<format>.*`.

    Raises BindError if it has both `format` and `value.format`.
    """
    name = table.options.get("value.format")
    if name is None:
        return table
    if "format" in table.options:
        message = f'table "{table.name}" has both "format" and "value.format"'
        raise BindError(message, table.option_span("format"), hint="Leave out one of them.")
    before = f"value.{name.lower()}."
    names = {o: o.removeprefix("value.") if o.startswith(before) else o for o in table.options}
    names["value.format"] = "format"
    return replace(
        table,
        options={names[o]: v for o, v in table.options.items()},
        option_spans={names.get(o, o): v for o, v in table.option_spans.items()},
    )


def fields(table: Table) -> list[str]:
    """Return the names of the columns in the key, from `key.fields` or, for `upsert-kafka`, the PRIMARY KEY."""
    if is_upsert(table):
        return list(table.primary_key)
    return [name.strip() for name in table.options.get("key.fields", "").split(";") if name.strip()]


def is_upsert(table: Table) -> bool:
    """Whether the connector is `upsert-kafka`: the key is the PRIMARY KEY, and a message replaces the last one with its key."""
    return table.connector == UPSERT_KAFKA


def is_apart(table: Table) -> bool:
    """Whether values leave out the columns of the key (`value.fields-include` is `EXCEPT_KEY`)."""
    return _include(table.options.get("value.fields-include", ALL)) == EXCEPT_KEY


def layout(table: Table) -> KeyLayout | None:
    """Return which columns are read from keys; None if all columns are in the values, and no value may be missing."""
    if "key.format" not in table.options or not (is_apart(table) or is_upsert(table)):
        return None
    prefix = table.options.get("key.fields-prefix", "")
    key_names = [name.lower() for name in fields(table)]
    columns = sorted(
        (c for c in table.stored if c.name.lower() in key_names), key=lambda c: key_names.index(c.name.lower())
    )
    inside = tuple(replace(c, name=c.name[len(prefix) :]) for c in columns)
    options = {k.removeprefix("key."): v for k, v in table.options.items() if k.startswith("key.")}
    return KeyLayout(replace(table, columns=inside, options=options), tuple(columns))


def validate(table: Table) -> None:
    """Raise BindError for options about keys and formats that do not fit together. The table must be the result of `plain`."""
    named = f'table "{table.name}"'
    in_value = [c for c in table.stored if not (is_apart(table) and c.name.lower() in map(str.lower, fields(table)))]
    check_raw("format", in_value, table)
    prefix, key_names = table.options.get("key.fields-prefix", ""), fields(table)
    if (form := FORMATS.get(format_of(table))) is not None:
        check_required(table, form.options)
    if ("key.format" in table.options) != bool(key_names):
        one, other = ("key.format", "key.fields") if not key_names else ("key.fields", "key.format")
        raise BindError(f'{named}: option "{one}" needs the option "{other}"', table.option_span(one))
    if not key_names:
        if prefix:
            at = table.option_span("key.fields-prefix")
            raise BindError(f'{named}: option "key.fields-prefix" needs the option "key.fields"', at)
        return
    stored = {c.name.lower(): c for c in table.stored}
    of, option = ("the PRIMARY KEY", "key.fields-prefix") if is_upsert(table) else ('"key.fields"', "key.fields")
    for name in key_names:
        at = table.option_span(option, value=True)
        if name.lower() not in stored:
            hint = missing("column", name, [c.name for c in table.stored])
            raise BindError(f'{named}: column "{name}" of {of} does not exist', at, hint=hint)
        if not name.lower().startswith(prefix.lower()):
            raise BindError(f'{named}: column "{name}" of {of} does not begin with "{prefix}"', at)
    if prefix and not is_apart(table):
        message = f'{named}: option "key.fields-prefix" needs "value.fields-include" = "{EXCEPT_KEY}"'
        hint = f"Set 'value.fields-include' = '{EXCEPT_KEY}': fields of the value have no prefix."
        raise BindError(message, table.option_span("key.fields-prefix"), hint=hint)
    if is_apart(table) and table.has_changes and not is_upsert(table):
        message = f'{named}: "value.fields-include" = "{EXCEPT_KEY}" does not go with rows that are changes'
        hint = "Leave it out: such rows have all their columns in the value."
        raise BindError(message, table.option_span("value.fields-include"), hint=hint)
    check_raw("key.format", [stored[name.lower()] for name in key_names], table)


def check_raw(option: str, columns: Sequence[Column], table: Table) -> None:
    """Raise BindError if `option`, such as `key.format`, is `raw`, unless `columns` is one column of a type that `raw` has."""
    if table.options.get(option, "").lower() == "raw" and (wrong := problem(columns)) is not None:
        at = table.option_span(option, value=True)
        raise BindError(f'table "{table.name}": {option} "raw" {wrong}', at, hint=HINT)
