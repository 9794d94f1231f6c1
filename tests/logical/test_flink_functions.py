"""The table of Flink's functions: every form is DuckDB SQL, and every list says what is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.errors import SourceText
from sqlstream.java_patterns import UntranslatablePattern, strftime_pattern
from sqlstream.logical.bind.expressions.flink_functions import DIFFERENT, INSTEAD, REWRITTEN, SAME
from sqlstream.logical.bind.expressions.type_checker import _built_in
from sqlstream.sql.statements import parse_expression

GOLDEN = Path(__file__).parent.parent / "slt"
SCRIPTS = ("current_watermark", "flink_functions", "nested")
# Grammar to DuckDB, not functions of its catalog, or functions of windows.
GRAMMAR = {"coalesce", "extract", "first_value", "ifnull", "overlay", "position", "substring", "trim", "try_cast"}


@pytest.mark.parametrize("name", [*SAME, *DIFFERENT])
def test_duckdb_has_what_is_said_to_be_its_own(name: str) -> None:
    assert name in GRAMMAR or name in _built_in()[1]


def test_a_name_is_in_one_list_only() -> None:
    second = [text.split(":")[0][4:].lower() for text in DIFFERENT.values() if text.startswith("and ")]
    names = [*REWRITTEN, *SAME, *DIFFERENT, *second, *INSTEAD]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", REWRITTEN)
def test_forms_are_expressions(name: str) -> None:
    for form in REWRITTEN[name].values():
        if isinstance(form, str):
            parse_expression(SourceText("form", form))


@pytest.mark.parametrize("name", [*REWRITTEN, *SAME])
def test_every_function_is_in_a_golden_script(name: str) -> None:
    scripts = "".join((GOLDEN / f"{script}.slt").read_text() for script in SCRIPTS)
    assert f"{name}(" in scripts.lower()


@pytest.mark.parametrize("pattern", ["Q", "'open", "SS", "[yyyy]", "HH:mm O", "nnnn", "VVVV"])
def test_patterns_without_a_translation(pattern: str) -> None:
    with pytest.raises(UntranslatablePattern):
        strftime_pattern(pattern)
