"""`sqlstream docs` shows the manual."""

from __future__ import annotations

import io
import re

import pytest
from click.testing import CliRunner, Result

from sqlstream.cli.docs import contents, read_page, rendered
from sqlstream.cli.main import cli
from sqlstream.errors import UsageError


def docs(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["docs", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_without_a_page_there_is_a_line_for_each() -> None:
    lines = docs().output.splitlines()
    assert [line.split()[0] for line in lines[: len(contents())]] == [page.name for page in contents()]
    assert lines[0].split(maxsplit=1) == list(contents()[0])


def test_a_page_in_a_pipe_is_its_markdown() -> None:
    assert docs("quickstart").output == read_page("quickstart")[1]


def test_the_last_part_of_a_name_is_enough() -> None:
    assert read_page("windows") == read_page("sql/windows") == read_page("sql/windows.md")


@pytest.mark.parametrize(("name", "near"), [("quikstart", "quickstart"), ("sql/window", "sql/windows")])
def test_a_wrong_name_has_a_near_one(name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        docs(name)
    assert caught.value.message == f'page "{name}" does not exist'
    assert caught.value.hint == f'did you mean "{near}"?'


def test_a_terminal_gets_tables_and_names_of_pages() -> None:
    assert "<!-- generated" in read_page("sql/aggregates")[1]
    for name in ("sql/windows", "sql/aggregates"):
        shown = rendered(*read_page(name), 80)
        assert "\x1b[" in shown
        assert "|---|" not in shown
        assert "<!--" not in shown
        assert ".md" not in shown
    assert max(map(len, io.StringIO(rendered("x", "word " * 100, 80)))) <= 81


def test_a_search_names_page_and_line() -> None:
    page, line, text = docs("--search", "watermark passes").output.splitlines()[0].split(":", 2)
    assert read_page(page)[1].splitlines()[int(line) - 1].strip() == text.strip()
    assert "watermark" in text.lower()
    with pytest.raises(UsageError, match='no page has "gibberisch"'):
        docs("--search", "gibberisch")


def found(words: str) -> list[str]:
    return [line.split(": ", 1)[1] for line in docs("--search", words).output.splitlines()]


def test_a_search_begins_with_headings_and_whole_words() -> None:
    assert found("count window")[0] == "## Count windows"
    # "concepts" and "EXCEPT" have the letters, and come last.
    lines = found("CEP")
    is_whole = ["cep" in re.split(r"[^a-z]+", line.lower()) for line in lines]
    assert is_whole[0]
    assert not is_whole[-1]
    assert is_whole == sorted(is_whole, reverse=True)
    assert all("concepts" not in line and "except" not in line.lower() for line in lines[: sum(is_whole)])


@pytest.mark.parametrize("words", ["window", "savepoint", "state ttl", "interval join", "process function"])
def test_headings_come_first(words: str) -> None:
    assert found(words)[0].startswith("#")


@pytest.mark.parametrize(
    "words",
    [
        *(
            "ProcessWindowFunction",
            "windowAll",
            "ReduceFunction",
            "AggregateFunction",
            "ProcessJoinFunction",
            "coGroup",
            "evictor",
        ),
        *(
            "minBy",
            "iterate",
            "fromElements",
            "readTextFile",
            "GenericWriteAheadSink",
            "QueryableStateClient",
            "Table API",
        ),
    ],
)
def test_names_of_the_datastream_api_lead_to_its_page(words: str) -> None:
    assert "concepts/datastream:" in docs("--search", words).output


def test_the_help_lists_all_commands_and_some_examples() -> None:
    shown = CliRunner().invoke(cli, []).output
    for command in ("run", "query", "explain", "jobs", "stop", "drop", "check", "docs"):
        assert f"  {command} " in shown
    assert shown.count("\n    sqlstream ") == 3
