"""Every block of the manual runs, and what the pages show is what comes out. `--update` rewrites the outputs."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.docs.pages import (
    README,
    Shown,
    blocks_of,
    page_name,
    pages,
    run_page,
    uses_elasticsearch,
    uses_kafka,
    uses_mysql,
    uses_postgresql,
    uses_spark,
)

IN_PROCESS = [path for path in pages() if not uses_spark(path)]
ON_SPARK = [
    pytest.param(path, id=page_name(path), marks=[] if page_name(path) == "quickstart" else pytest.mark.thorough)
    for path in pages()
    if uses_spark(path)
]


def compare(path: Path, outputs: list[Shown], *, update: bool) -> None:
    wrong = [output for output in outputs if not output.is_right]
    if update:
        lines = path.read_text("utf-8").splitlines()
        for output in reversed(wrong):
            lines[output.start : output.end] = output.lines
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return
    for output in wrong:
        difference = difflib.unified_diff(output.expected, output.lines, "shown", "comes out", lineterm="", n=99)
        pytest.fail(f"{path}:{output.start}\n" + "\n".join(difference), pytrace=False)


# The pages with most examples.
LONGEST = (
    "python/process-functions",
    "python/process-patterns",
    "python/aggregate-functions",
    "sql/joins",
    "sql/windows",
)


def marks_of(path: Path) -> list[pytest.MarkDecorator]:
    is_slow = page_name(path) in LONGEST or uses_postgresql(path) or uses_mysql(path)
    if uses_elasticsearch(path):
        return [pytest.mark.slow, pytest.mark.thorough]
    return [*([pytest.mark.slow] if is_slow else []), *([pytest.mark.kafka] if uses_kafka(path) else [])]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=marks_of(path)) for path in IN_PROCESS],
    ids=page_name,
)
def test_the_page_shows_what_comes_out(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if uses_kafka(path):
        monkeypatch.setenv("KAFKA_SERVERS", request.getfixturevalue("kafka"))
    if uses_elasticsearch(path):
        monkeypatch.setenv("SEARCH_HOST", request.getfixturevalue("elasticsearch").url)
    database = None
    if uses_postgresql(path):
        database = request.getfixturevalue("postgres").database()
        monkeypatch.setenv("SHOP_DB", database.url)
        request.addfinalizer(database.drop_slots)
    if uses_mysql(path):
        database = request.getfixturevalue("mariadb").database(password="secret")
        monkeypatch.setenv("SHOP_DB", database.url)
    compare(path, list(run_page(path, database=database)), update=request.config.getoption("update"))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("path", ON_SPARK)
def test_the_page_shows_what_comes_out_on_spark(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, list(run_page(path, tmp_path / "project")), update=request.config.getoption("update"))


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_a_reader_sees_where_rows_and_files_go(path: Path) -> None:
    """What stands behind a fence is not shown: the text above a block must name its table, or its file."""
    lines = path.read_text("utf-8").splitlines()
    for block in blocks_of(path):
        if block.language in ("csv", "json") and block.words:
            above = "\n".join(lines[: block.start - 1]).rstrip().rpartition("\n\n")[2]
            assert f"`{block.words[0]}`" in above, f"{path}:{block.start}"


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 200
