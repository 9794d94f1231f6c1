"""The lists of the manual are made from the code. `--update` rewrites them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import pytest

from sqlstream import flink_settings
from sqlstream.connectors import flink_options, reference
from sqlstream.connectors.registry import connectors_elsewhere
from sqlstream.duck.aggregates.functions import FUNCTIONS, REFUSED, Kind
from sqlstream.logical.bind.expressions.flink_functions import DIFFERENT, INSTEAD, REWRITTEN, SAME
from sqlstream.monitoring.families import FAMILIES
from sqlstream.options import OPTIONS
from sqlstream.sql import unsupported
from sqlstream.storage.facts import FACTS, Fact
from tests.docs.pages import ROOT, pages
from tests.flink_examples import EXAMPLES, differences
from tests.flink_scripts.corpus import NAMES, standing


def aggregates() -> str:
    """The aggregate functions, by what a group keeps for them."""

    def names(*kinds: Kind) -> str:
        return ", ".join(
            f"`{name}`" for name, shape in sorted(FUNCTIONS.items()) if shape.kind in kinds and name not in INSTEAD
        )

    lists = {Kind.QUANTILE, Kind.VALUES}
    merged = [kind for kind in Kind if kind not in lists]
    return "\n".join(
        [
            f"Partial results, one row for each group: {names(*merged)}.",
            "",
            f"All values of a group: {names(*lists)}; also every `DISTINCT`, and every `ORDER BY` inside an aggregate.",
            "",
            f"Refused: {', '.join(f'`{name}`' for name in sorted(REFUSED))}.",
        ]
    )


def metrics() -> str:
    """The metrics of jobs."""
    lines = ["| metric | type | labels | |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        names = ", ".join(f"`{name}`" for name in family.exported)
        lines.append(f"| {names} | {family.kind} | {', '.join(f'`{n}`' for n in family.labels)} | {family.meaning} |")
    return "\n".join(lines)


# The system tables of facts, by the attribute of `Job.progress`.
_TABLES = {"sources": "watermarks", "operators": "operators", "sinks": "sinks"}


def columns(parts: str) -> str:
    """The columns of a system table, with their metrics."""
    lines = ["| column | type | unit | | metric |", "|---|---|---|---|---|"]
    for fact in FACTS[parts]:
        metric = f"`{FAMILIES[fact.exported].exported[0]}`" if fact.exported else ""
        lines.append(f"| `{fact.name}` | {fact.type} | {fact.unit} | {fact.meaning} | {metric} |")
    return "\n".join(lines)


def totals() -> str:
    """The sums of numbers over a job."""
    lines = ["| number | unit | sum of |", "|---|---|---|"]
    for parts, facts in FACTS.items():
        for fact in facts:
            if fact.total:
                names = " or ".join(f"`{name}`" for name in (fact.total, fact.older_total) if name)
                lines.append(f"| {names} | {fact.unit} | `{fact.name}` in `sqlstream.{_TABLES[parts]}` |")
    return "\n".join(lines)


def progress() -> str:
    """The attributes of a job's progress, by what they are about."""

    def name(fact: Fact) -> str:
        return f"`{fact.attribute}`" + (f" (column `{fact.name}`)" if fact.attribute != fact.name else "")

    lines = (
        f"- `{parts}`: {', '.join(name(fact) for fact in facts if fact.attribute)}" for parts, facts in FACTS.items()
    )
    return "\n".join(lines)


def options() -> str:
    rows = [f"| `{o.name}` | {o.default or '-'} | {o.meaning} |" for o in OPTIONS.values()]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])


def flink_functions() -> str:
    """Flink's functions, by what becomes of them."""

    def names(listed: Iterable[str]) -> str:
        return ", ".join(f"`{name.upper()}`" for name in sorted(listed))

    others = "\n".join(f"- {_different(name.upper(), meaning)}" for name, meaning in sorted(DIFFERENT.items()))
    return "\n".join(
        [
            f"Flink's meaning: {names(REWRITTEN)}, and `IS JSON`.",
            "",
            f"The same in Flink and DuckDB: {names(SAME)}.",
            "",
            "DuckDB's meaning, which differs from Flink's:",
            "",
            others,
            "",
            f"Refused; the error says what to write instead: {names(INSTEAD)}.",
        ]
    )


def _different(name: str, meaning: str) -> str:
    if meaning.startswith("and "):
        other, _, meaning = meaning.removeprefix("and ").partition(": ")
        return f"`{name}`, `{other}`: {meaning}"
    return f"`{name}`: {meaning}"


def statements_of_flink() -> str:
    """The statements that are refused, by what to write instead."""
    return _instead("statement", unsupported.STATEMENTS)


def clauses_of_flink() -> str:
    """The clauses of columns and tables that are refused, by what to write instead."""
    return _instead("clause", {**unsupported.CONSTRAINTS, **unsupported.COLUMN_CLAUSES})


def connectors_of_flink() -> str:
    """The connectors that only Flink has, by what to write instead."""
    return _instead("connector", connectors_elsewhere())


def scripts_of_flink() -> str:
    """Return how many scripts of the corpus run as they are, and how many do once connectors are replaced."""
    refused = standing()["refused"].values()
    foreign = sum(all(words.startswith("connector: ") for words in script) for script in refused)
    return (
        f"Of {len(NAMES)} scripts that are written as people write them for Flink (`tests/flink_scripts`), "
        f"{len(NAMES) - len(refused)} run as they are. {foreign} more run once tables of connectors that do not exist here "
        f"are replaced, and {len(refused) - foreign} are refused."
    )


def _instead(what: str, hints: Mapping[str, str]) -> str:
    """Return a table of names, those with one hint in one row."""
    names: dict[str, list[str]] = {}
    for name, hint in hints.items():
        names.setdefault(hint, []).append(f"`{name}`")
    rows = (f"| {', '.join(listed)} | {_escaped(hint)} |" for hint, listed in names.items())
    return "\n".join([f"| {what} | instead |", "|---|---|", *rows])


def _escaped(text: str) -> str:
    # Two words in angle brackets, or a pipe, would be markup.
    return text.replace("|", "\\|").replace("<", "&lt;")


def _listed(names: Iterable[str]) -> str:
    return f"{', '.join(f'`{name}`' for name in dict.fromkeys(names))}."


def other_names() -> str:
    """The options of Flink's configuration that have another name here."""
    rows = (f"| `{flinks}` | `{own}` |" for flinks, own in flink_settings.OTHER_NAMES.items())
    return "\n".join(["| in Flink | here |", "|---|---|", *rows])


def layers() -> str:
    """The layers that import-linter enforces, from top to bottom, and what each module says of itself."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [contract] = [contract for contract in contracts if contract["type"] == "layers"]
    rows = []
    for number, layer in enumerate(contract["layers"], 1):
        for name in layer.split(" | "):
            folder = ROOT / "sqlstream" / name
            source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            about = (ast.get_docstring(ast.parse(source.read_text("utf-8"))) or "").partition("\n")[0]
            shown = f"{name}/" if folder.is_dir() else f"{name}.py"
            rows.append(f"| {number} | `{shown}` | {about} |")
    return "\n".join(["| | | |", "|---|---|---|", *rows])


LISTS: dict[str, Callable[[], str]] = {
    "aggregates": aggregates,
    "flink examples": differences,
    "flink functions": flink_functions,
    "options": options,
    "settings of Flink without an effect": lambda: "\n".join(flink_settings.reference()),
    "scripts of Flink that run": scripts_of_flink,
    "examples of Flink that differ": lambda: _listed(example.sql for example in EXAMPLES if example.here),
    "statements of Flink that do not run": statements_of_flink,
    "clauses of Flink that do not run": clauses_of_flink,
    "connectors of Flink that do not exist": connectors_of_flink,
    "names of options without an effect": lambda: _listed(option.name for option in flink_options.OPTIONS),
    "names of settings without an effect": lambda: _listed(setting.name for setting in flink_settings.SETTINGS),
    "settings with other names": other_names,
    "layers": layers,
    "metrics": metrics,
    "numbers of a job": totals,
    "progress": progress,
    **{f"columns of {table}": partial(columns, parts) for parts, table in _TABLES.items()},
}
# A page may have any of these; that of guarantees must be there.
CONNECTORS = reference()
_LIST = re.compile(r"<!-- generated: (?P<name>[\w -]+) -->\n(?P<text>.*?)<!-- end -->\n", re.DOTALL)


def test_lists_are_those_of_the_code(request: pytest.FixtureRequest) -> None:
    names = []
    for path in pages():
        text = path.read_text("utf-8")
        made = _LIST.sub(lambda found: _made(found["name"]), text)
        names += [found["name"] for found in _LIST.finditer(text)]
        if request.config.getoption("update"):
            path.write_text(made, "utf-8")
        else:
            assert made == text, f"{path}: `pytest {__file__} --update` writes the lists anew"
    assert len(set(names)) == len(names)
    assert {*LISTS, "guarantees"} <= set(names) <= {*LISTS, *CONNECTORS}


def _made(name: str) -> str:
    return f"<!-- generated: {name} -->\n{CONNECTORS[name] if name in CONNECTORS else LISTS[name]()}\n<!-- end -->\n"
