"""Results and jobs as HTML tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from html import escape

import duckdb

from sqlstream.jobs.job import Job
from sqlstream.session.job_texts import facts
from sqlstream.session.rendering import is_number, texts

# The most rows of a result that are shown.
MOST = 100


def table(names: Sequence[str], rows: Iterable[Sequence[str | None]], numbers: Sequence[bool], note: str = "") -> str:
    """Return an HTML table, with a note below it; None is NULL, columns with True in `numbers` are right-aligned.

    >>> table(["n"], [["<1>"], [None]], [True])
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td style="text-align:right">&lt;1&gt;</td></tr><tr><td \
style="text-align:right"><i>NULL</i></td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    styles = ["text-align:right" if number else "text-align:left" for number in numbers]
    body = "".join(f"<tr>{_cells(row, styles)}</tr>" for row in rows)
    after = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{after}"


def _cells(row: Sequence[str | None], styles: Sequence[str]) -> str:
    return "".join(f'<td style="{style}">{_value(value)}</td>' for value, style in zip(row, styles, strict=True))


def _value(value: str | None) -> str:
    if value is None:
        return "<i>NULL</i>"
    # Such as the text of a plan: its line breaks and spaces stay.
    is_laid_out = "\n" in value or value.startswith(" ")
    return f'<span style="white-space:pre-wrap">{escape(value)}</span>' if is_laid_out else escape(value)


def relation_html(relation: duckdb.DuckDBPyRelation) -> str:
    """Return the first rows of a relation, at most MOST, as an HTML table."""
    rows = list(itertools.islice(texts(relation), MOST + 1))
    note = f"the first {MOST} rows" if len(rows) > MOST else f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    return table(relation.columns, rows[:MOST], [is_number(str(type)) for type in relation.types], note)


def job_html(job: Job) -> str:
    """Return the status, the progress and the error of a job as an HTML table, without values that are missing."""
    fields = {name: text for name, text in facts(job).items() if text is not None}
    return table(list(fields), [list(fields.values())], [False] * len(fields))
