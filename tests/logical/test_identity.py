"""By which values a plan is known: the canonical form of expressions, and the digest of a plan."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.jobs.identity import Identity, planned_identity
from sqlstream.logical.plan.canonical import canonical
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.nodes import AnyNode
from tests.golden import InProcess, named, parse
from tests.kinds import last_job
from tests.slt_functions import FUNCTIONS

SCRIPTS = Path(__file__).parents[1] / "slt"
# Those with most kinds of expressions, and of operators.
GOLDEN = (
    "aggregates",
    "flink_functions",
    "functions",
    "grouping_sets",
    "join_conditions",
    "over",
    "time",
    "unnest",
    "window_rank",
)
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|[^\s()]")
TABLES = """
CREATE TABLE a (k BIGINT, x BIGINT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE changes (op STRING, k BIGINT, x BIGINT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json', 'changelog.op-column' = 'op');
"""


def test_every_kind_of_node_is_declared_by_its_class_and_no_two_share_one() -> None:
    kinds = get_args(AnyNode)
    declared = {kind: vars(kind).get("node_kind") for kind in kinds}
    assert None not in declared.values()
    assert len(set(declared.values())) == len(kinds)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"a" = "b"', '("b") = "a"'),
        ('"a" <> 1', '1 <> "a"'),
        ('"a" < "b"', '"b" > "a"'),
        ('"a" >= 1', '1 <= "a"'),
        ('"a" IS DISTINCT FROM "b"', '"b" is distinct from "a"'),
        ('"a" AND ("b" AND "c")', '("c" AND "a") AND "b"'),
        ('("a" OR "b") AND "c"', '"c" AND ("b" OR "a")'),
        ('lower("s")', 'LOWER ( "s" )'),
        ('CAST("a" AS BIGINT)', '"a"::bigint'),
        ('"a" DESC NULLS LAST', '("a") desc nulls last'),
    ],
)
def test_expressions_of_equal_values_share_a_form(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"a" < "b"', '"b" < "a"'),
        ('"a" < "b"', '"a" <= "b"'),
        ('"a" - "b"', '"b" - "a"'),
        ('("a" - "b") - "c"', '"a" - ("b" - "c")'),
        ('("a" OR "b") AND "c"', '"a" OR ("b" AND "c")'),
        ('"a" AND "a"', '"a"'),
        ('"a" = 1', "\"a\" = '1'"),
        ('"a" = 1', '"a" = 1.0'),
        ('"a"', '"A"'),
        ('"a"', "'a'"),
        ("TRUE", "FALSE"),
        ("'it''s'", "'its'"),
        ('"a" IS NULL', '"a" IS NOT NULL'),
        ('"a" DESC', '"a" ASC'),
        ('"a" DESC NULLS FIRST', '"a" DESC NULLS LAST'),
        ('CAST("a" AS BIGINT)', 'TRY_CAST("a" AS BIGINT)'),
        ('CAST("a" AS BIGINT)', 'CAST("a" AS INTEGER)'),
        ('CAST("a" AS DECIMAL(10, 2))', 'CAST("a" AS DECIMAL(10, 3))'),
        ('"l"[1]', '"l"[2]'),
        ('"l"[1:2]', '"l"[1:3]'),
        ('CASE WHEN "a" THEN 1 ELSE 2 END', 'CASE WHEN "a" THEN 2 ELSE 1 END'),
        ('f("a", "b")', 'f("b", "a")'),
        ("INTERVAL '1' DAY", "INTERVAL '1' HOUR"),
        ("\"s\" LIKE 'a'", "\"s\" ILIKE 'a'"),
        ('"a" IN (1, 2)', '"a" IN (1, 3)'),
        ('"a" BETWEEN 1 AND 2', '"a" BETWEEN 2 AND 1'),
    ],
)
def test_other_expressions_have_other_forms(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("sql", ["SELECT 1", '"a", "b"', '"a" LIMIT 1', "(", '"a" FROM b', "(" * 20 + '"a"' + ")" * 20])
def test_what_is_no_plain_expression_is_as_it_is_written(sql: str) -> None:
    assert canonical(sql) == f"sql {sql}"


def test_a_long_chain_and_a_long_sum_have_a_form() -> None:
    parts = [f'"a" <> {i}' for i in range(2000)]
    assert canonical(" AND ".join(parts)) == canonical(" AND ".join(reversed(parts)))
    assert canonical(" + ".join(['"a"'] * 300)) != canonical(" + ".join(['"a"'] * 301))


@cache
def golden_jobs(script: str) -> tuple[PlannedJob, ...]:
    """Return the jobs of the cases of a golden script, as far as its statements are compiled alone."""
    jobs: list[PlannedJob] = []
    for case in parse(SCRIPTS / f"{script}.slt"):
        runner = InProcess(named(case, FUNCTIONS))
        try:
            for record in case.records:
                if record.verb == "statement":
                    try:
                        compiled = runner.stream.compiler.scripts([SourceText("sql", "\n".join(record.body))])
                    except SqlStreamError:
                        continue
                    jobs += [one for one in compiled if isinstance(one, PlannedJob)]
        finally:
            runner.close()
    return tuple(jobs)


def expressions(script: str) -> Iterator[str]:
    """Yield the SQL of every expression of the plans of a golden script, once."""
    nodes = (node for job in golden_jobs(script) for plan in job.optimized for node in walk(plan))
    yield from dict.fromkeys(expression.sql for node in nodes for expression in node.expressions)


@pytest.mark.slow
@pytest.mark.parametrize("script", GOLDEN)
def test_jobs_of_golden_scripts_have_equal_digests_where_their_texts_are_equal_and_only_there(script: str) -> None:
    digests, texts = defaultdict(set), defaultdict(set)
    for job in golden_jobs(script):
        identity = planned_identity(job)
        assert identity.digests is not None
        digests[identity.text].add(identity.digests)
        texts[identity.digests.plan, identity.digests.tables].add(identity.text)
    assert len(texts) > 1
    assert [text for text, several in digests.items() if len(several) > 1] == []
    assert [several for several in texts.values() if len(several) > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("script", GOLDEN)
def test_expressions_of_golden_scripts_share_a_form_only_where_they_are_equal(script: str) -> None:
    forms = defaultdict(list)
    for sql in expressions(script):
        forms[canonical(sql)].append(sql)
    for several in forms.values():
        # But for parentheses, what they are made of is the same.
        mirrored = [sql.replace(">", "<") for sql in several]
        assert len({tuple(sorted(Counter(_TOKEN.findall(sql)).items())) for sql in mirrored}) == 1, several


@pytest.mark.slow
@pytest.mark.parametrize("script", GOLDEN)
def test_a_form_is_that_of_the_expression_printed_otherwise_and_not_that_of_a_changed_one(script: str) -> None:
    changed = 0
    for sql in expressions(script):
        form = canonical(sql)
        if form.startswith("sql "):
            continue
        assert canonical(f"( {sql} )" if not re.search(r"\b(ASC|DESC|NULLS)\b", sql) else f" {sql} ") == form
        for other in changes(sql):
            changed += 1
            assert canonical(other) != form, other
    assert changed > 5


def changes(sql: str) -> Iterator[str]:
    """Yield the texts of an expression with one literal or column changed."""
    for token in _TOKEN.finditer(sql):
        text = token[0]
        if text[0] in "'\"":
            yield f"{sql[: token.end() - 1]}x{sql[token.end() - 1 :]}"
        elif text.isdecimal():
            yield f"{sql[: token.start()]}9{sql[token.start() :]}"


def identity_of(query: str) -> Identity:
    return planned_identity(last_job(TABLES + query))


def test_the_order_of_conditions_makes_no_other_job() -> None:
    one = identity_of("SELECT k FROM a WHERE x > 1 AND k = x")
    other = identity_of("SELECT k FROM a WHERE x = k AND 1 < x")
    assert one.text != other.text
    assert one.is_same(other)


def test_a_window_of_a_month_is_none_of_its_days() -> None:
    def windows(size: str) -> Identity:
        return identity_of(f"SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), {size})")

    others = (
        *("INTERVAL '1' MONTH", "INTERVAL '30' DAY", "INTERVAL '31' DAY", "INTERVAL '2' MONTH", "INTERVAL '1' YEAR"),
        *("INTERVAL '1' MONTH, INTERVAL '1' DAY", "INTERVAL '2' MONTH, INTERVAL '1' MONTH"),
    )
    assert len({windows(size).digests for size in others}) == len(others)
    assert windows("INTERVAL '12' MONTH").digests == windows("INTERVAL '1' YEAR").digests
    # Whole windows later lie the same windows.
    assert windows("INTERVAL '3' MONTH, INTERVAL '-1' YEAR").digests == windows("INTERVAL '1' QUARTER").digests


def test_calls_that_share_state_are_told_from_those_that_do_not() -> None:
    # What the sum and the average of one text need is kept once.
    once = last_job(TABLES + "SELECT k, SUM(x * (k - x)) AS t, AVG(x * (k - x)) AS m FROM changes GROUP BY k")
    twice = last_job(TABLES + "SELECT k, SUM(x * (k - x)) AS t, AVG((x * (k - x))) AS m FROM changes GROUP BY k")
    assert once.physical.stages[-1].operator.tables != twice.physical.stages[-1].operator.tables
    assert planned_identity(once).digests != planned_identity(twice).digests
    assert not planned_identity(once).is_same(planned_identity(twice))


def test_a_job_is_known_by_its_digests_and_by_words_where_those_cannot_be_compared() -> None:
    job = identity_of("SELECT k, COUNT(*) AS n FROM a GROUP BY k")
    other = identity_of("SELECT k, COUNT(*) AS n FROM a WHERE x > 1 GROUP BY k")
    assert job.digests is not None
    assert other.digests is not None
    reworded = replace(job, plan_text="in other words")
    assert job.is_same(reworded)
    # Words that say less than they did make two jobs no single one.
    assert not reworded.is_same(replace(other, plan_text="in other words"))
    # One that an earlier version recorded.
    assert not job.is_same(replace(reworded, digests=None))
    assert job.is_same(replace(job, digests=None))
    # With another sqlglot it may have other digests.
    printed = structs.replace(other.digests, printer="1, sqlglot 1.0")
    assert job.is_same(replace(job, digests=printed))
    assert not job.is_same(replace(reworded, digests=printed))
    assert job.is_same(replace(reworded, digests=structs.replace(job.digests, printer="1, sqlglot 1.0")))
