"""The manual's tables of connectors, formats and options, generated from their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlstream.catalog import VALUES
from sqlstream.connectors import flink_options, lookup
from sqlstream.connectors.faker.expressions import NAMES
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.guarantees import matrix
from sqlstream.connectors.interface import Connector
from sqlstream.connectors.options import FORMAT, SCAN_OPTIONS, TableOption
from sqlstream.connectors.registry import WAREHOUSE, built_in, named


def reference() -> Mapping[str, str]:
    """Return the manual's generated tables as Markdown, by name.

    The names are `connectors`, `options of NAME` and `metadata of NAME` for connectors that have some, `options of warehouse
    tables`, `options of tables that are read`, `options of lookup tables`, `formats`, `options of format NAME`, `expressions of
    faker`, `options of Flink without an effect`, and `guarantees`.
    """
    tables = {"connectors": connectors()}
    for connector in map(named, built_in()):
        if own := _own_options(connector):
            tables[f"options of {connector.name}"] = _options(own)
        if connector.metadata:
            tables[f"metadata of {connector.name}"] = _metadata(connector)
    tables["options of warehouse tables"] = _options(named(WAREHOUSE).options)
    tables["options of tables that are read"] = _options(SCAN_OPTIONS)
    tables["options of lookup tables"] = _options(lookup.OPTIONS)
    tables["formats"] = formats()
    tables |= {f"options of format {name}": _options(form.options) for name, form in FORMATS.items()}
    tables["expressions of faker"] = expressions()
    tables["options of Flink without an effect"] = "\n".join(flink_options.reference())
    tables["guarantees"] = guarantees()
    return tables


def connectors() -> str:
    """Return the table of connectors, with what a job can do with their tables, as Markdown."""
    lines = ["| connector | | read | written | looked up | formats |", "|---|---|---|---|---|---|"]
    for name in (WAREHOUSE, *built_in()):
        c = named(name)
        can = ["yes" if kind else "" for kind in (c.source_type, c.sink_type, c.lookup_type)]
        listed = ", ".join(f"`{form}`" for form in c.formats) + ("" if c.needs_format or not c.formats else ", or none")
        lines.append(f"| {_shown(name)} | {c.summary} | {' | '.join(can)} | {listed} |")
    return "\n".join(lines)


def formats() -> str:
    """Return the table of formats and their connectors, as Markdown."""
    lines = ["| format | connectors |", "|---|---|"]
    for name in FORMATS:
        having = ", ".join(f"`{c.name}`" for c in map(named, built_in()) if name in c.formats)
        lines.append(f"| `{name}` | {having} |")
    return "\n".join(lines)


def expressions() -> str:
    """Return the names that expressions of the connector `faker` may have, as Markdown."""
    return f"There are: {', '.join(f'`{name}`' for name in sorted(NAMES))}."


def guarantees() -> str:
    """Return the tables of the guarantees of sources and sinks, as Markdown."""
    all_connectors = [named(name) for name in ("filesystem", WAREHOUSE, *built_in()[1:], VALUES)]
    sources = [(p.where, p) for c in all_connectors for p in c.source_promises()]
    sinks = [(p.where, p) for c in (named(WAREHOUSE), *map(named, built_in())) for p in c.sink_promises()]
    return matrix(sources, sinks)


def _own_options(connector: Connector) -> tuple[TableOption, ...]:
    form = FORMAT if connector.needs_format else replace(FORMAT, required=False)
    return (*connector.options, *((form,) if connector.formats else ()))


def _options(options: Iterable[TableOption]) -> str:
    lines = ["| option | type | default | |", "|---|---|---|---|"]
    options = tuple(options)
    replaced = {option.instead_of for option in options}
    for option in options:
        default = "required" if option.required and option.name not in replaced else option.default or "-"
        lines.append(f"| `{option.name}` | {option.type.name} | {default} | {option.meaning} |")
    return "\n".join(lines)


def _metadata(connector: Connector) -> str:
    return "\n".join(["| key | |", "|---|---|", *(f"| `{key}` | {text} |" for key, text in connector.metadata.items())])


def _shown(name: str) -> str:
    return name if name == WAREHOUSE else f"`{name}`"
