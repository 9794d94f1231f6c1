"""The page for people who come from the DataStream API: what it names stands on the pages that it links."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS

PAGE = DOCS / "concepts" / "datastream.md"
_LINK = re.compile(r"\]\(([^)#\s]+\.md)")
_ROW = re.compile(r"^\| (?!DataStream API)(?P<theirs>[^|]+) \| (?P<ours>[^|]+) \| (?P<pages>[^|]+) \|$", re.MULTILINE)
ROWS = [found.groupdict() for found in _ROW.finditer(PAGE.read_text("utf-8"))]


def test_the_page_has_a_row_for_what_people_look_for() -> None:
    theirs = " ".join(row["theirs"] for row in ROWS)
    assert len(ROWS) > 40
    for word in (
        *(
            "ProcessWindowFunction",
            "windowAll",
            "ReduceFunction",
            "coGroup",
            "evictor",
            "PurgingTrigger",
            "minBy",
            "iterate",
        ),
        *("CoMapFunction", "broadcast variable", "accumulators", "distributed cache", "GenericWriteAheadSink", "CEP"),
        *("TwoPhaseCommitSinkFunction", "QueryableStateClient", "fromElements", "readTextFile", "Table API"),
    ):
        assert word in theirs


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["theirs"][:40])
def test_a_counterpart_is_explained_where_the_row_links(row: dict[str, str]) -> None:
    linked = [(PAGE.parent / target).resolve() for target in _LINK.findall(row["pages"])]
    assert linked
    text = " ".join(page.read_text("utf-8") for page in linked).lower()
    for code in re.findall(r"`([^`]+)`", row["ours"]):
        for word in re.findall(r"[\w@./-]*\w", code.lower()):
            assert word in text, f"{code}: no linked page has {word!r}"
