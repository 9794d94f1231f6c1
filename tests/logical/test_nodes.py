"""Every node of a plan answers for itself: no class, and no question, is forgotten."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

import pytest

from sqlstream.logical.plan.expressions import Expression, Field
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node, PassThrough
from sqlstream.logical.plan.nodes import AnyNode, Stateful
from sqlstream.logical.plan.relational import Union
from sqlstream.logical.plan.stateful import WithTimeToLive
from sqlstream.logical.plan.tables import Scan
from tests.kinds import last_job

TABLES = """
CREATE TABLE a (k BIGINT, l ARRAY<BIGINT>, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (k BIGINT, t TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR t AS t)
  WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'json');
CREATE TABLE changes (op STRING, k BIGINT, x BIGINT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json', 'changelog.op-column' = 'op');
CREATE TABLE known (k BIGINT, name STRING);
CREATE FUNCTION visits AS 'tests.slt_process_functions.Visits' LANGUAGE PYTHON;
CREATE FUNCTION parted AS 'tests.slt_process_functions.Parted' LANGUAGE PYTHON;
"""
TUMBLE = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
QUERIES = (
    "SELECT k + 1 AS n FROM a WHERE k > 1 UNION ALL SELECT k FROM b",
    f"SELECT k, window_end, COUNT(*) FROM {TUMBLE} GROUP BY GROUPING SETS ((k), ()), window_start, window_end",
    f"SELECT k, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY ts) AS n FROM {TUMBLE}",
    "SELECT * FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MONTH)",
    "SELECT * FROM TUMBLE_ROWS(TABLE a PARTITION BY k, DESCRIPTOR(ts), 3)",
    "SELECT a.k, x FROM a CROSS JOIN UNNEST(a.l) AS x",
    "SELECT a.k, name FROM a JOIN known FOR SYSTEM_TIME AS OF a.p AS n ON n.k = a.k",
    "SELECT a.k FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts AS v ON v.k = a.k",
    "SELECT a.k FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts",
    "SELECT a.k FROM a LEFT JOIN changes AS c ON a.k = c.k",
    "SELECT k, COUNT(*) FROM a GROUP BY k",
    "SELECT k FROM a INTERSECT SELECT k FROM b",
    "SELECT k, RANK() OVER (PARTITION BY k ORDER BY l) AS r FROM a QUALIFY r < 3",
    "SELECT k, LAG(k) OVER (ORDER BY ts) AS before FROM a",
    "SELECT k, ts FROM a ORDER BY ts",
    "SELECT * FROM visits(TABLE (SELECT k, ts, 'home' AS page FROM a) PARTITION BY k, on_time => DESCRIPTOR(ts))",
    "SELECT * FROM SIDE_OUTPUT(TABLE (SELECT * FROM parted(TABLE (SELECT k AS x FROM a))), 'odd')",
    f"SELECT * FROM LATE_ROWS(TABLE (SELECT k, COUNT(*) FROM {TUMBLE} GROUP BY k, window_start, window_end))",
)


@cache
def plans() -> tuple[Node, ...]:
    jobs = [last_job(TABLES + query) for query in QUERIES]
    return tuple(node for job in jobs for node in (*job.logical, *job.optimized))


def instances() -> Iterator[Node]:
    return (node for plan in plans() for node in walk(plan))


def classes(of: type[Node] = Node) -> Iterator[type[Node]]:
    """Yield the classes of nodes that can be in a plan."""
    kind: type[Node]
    for kind in of.__subclasses__():
        yield from classes(kind)
        if not inspect.isabstract(kind) and kind.__module__.startswith("sqlstream."):
            yield kind


PROPERTIES = sorted(name for name in dir(Node) if not name.startswith("_") and not callable(getattr(Node, name)))


def test_the_union_of_all_nodes_has_every_class() -> None:
    assert set(get_args(AnyNode)) == set(classes())


@pytest.mark.slow
def test_the_queries_of_this_file_have_a_node_of_every_class() -> None:
    assert {type(node) for node in instances()} == set(get_args(AnyNode))


@pytest.mark.parametrize("kind", get_args(AnyNode), ids=lambda kind: kind.__name__)
def test_a_node_answers_every_question(kind: type) -> None:
    for node in (n for n in instances() if type(n) is kind):
        answers = {name: getattr(node, name) for name in PROPERTIES}
        assert answers["schema"]
        assert all(isinstance(f, Field) for f in answers["schema"])
        assert all(isinstance(e, Expression) for e in answers["expressions"])
        assert answers["label"]
        assert inspect.getdoc(kind)
        names = {f.name for f in answers["schema"]}
        below = {f.name for child in node.children for f in child.schema}
        assert {*answers["time_attributes"], *answers["batch_times"]} <= names | below
        assert answers["is_changelog"] == (answers["changelog_origin"] is not None)
        origin = answers["changelog_origin"]
        assert origin is None or any(n is origin for n in walk(node))
        assert (answers["state_bound"] is not None) == isinstance(node, Stateful)
        assert answers["state_growth"] is None or isinstance(node, Stateful)
        assert all(key <= names | below for key in answers["unique_keys"])


@pytest.mark.parametrize("kind", get_args(AnyNode), ids=lambda kind: kind.__name__)
def test_a_node_over_other_children_is_another_one_only_where_they_are_others(kind: type) -> None:
    for node in (n for n in instances() if type(n) is kind):
        assert node.with_children(node.children) is node
        others = tuple(replace(child) for child in node.children)  # type: ignore[type-var]
        moved = node.with_children(others)
        assert moved == node
        assert all(a is b for a, b in zip(moved.children, others, strict=True))


def test_what_has_a_time_to_live_is_known_to_the_hints_that_set_it() -> None:
    remembering = {kind for kind in get_args(AnyNode) if issubclass(kind, WithTimeToLive)}
    assert {kind for kind in get_args(AnyNode) if "ttl" in kind.__dataclass_fields__} == remembering


def test_a_node_that_does_not_answer_cannot_be_made() -> None:
    @dataclass(frozen=True)
    class Forgetful(PassThrough):
        """Says neither what it is called nor what tells its rows apart."""

    with pytest.raises(TypeError, match=r"methods description, effect, expressions, label, unique_keys, values"):
        Forgetful(plans()[0])  # type: ignore[abstract]


def test_an_answer_is_derived_once_for_all_that_share_a_node() -> None:
    asked: Counter[str] = Counter()

    class Counting(Scan):
        """Counts how often it is asked for what it knows."""

        def __getattribute__(self, name: str) -> object:
            if name in PROPERTIES:
                asked[name] += 1
            return super().__getattribute__(name)

    [scan] = [n for n in walk(plans()[0]) if isinstance(n, Scan) and n.table.name == "a"]
    # A node that is below both sides of a union that is below both sides of the next: 4,096 ways to the bottom.
    whole: Node = Counting(scan.table, "a")
    for _ in range(12):
        whole = Union((whole, whole))
    for name in PROPERTIES:
        getattr(whole, name)
    assert whole.schema == scan.schema
    # The lowest union may need an answer for several of its own.
    assert max(asked.values()) < 50, asked
