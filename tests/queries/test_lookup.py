"""Lookups of keys find what a state query finds: of every kind of state, of every type of key, at every version."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sqlstream.errors import QueryError
from sqlstream.queries.histories import JobHistories
from sqlstream.queries.lookup import FoundRows, LookupRequest, Lookups
from sqlstream.queries.lookup_turns import PendingRequest
from sqlstream.storage.key_index import forget_indexes
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse
from tests.queries.state_kinds import KINDS, job_of, versions

ROOM = 1 << 30
COUNTS = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE t (k INT);
WITH o AS (SELECT k, COUNT(*) AS n FROM t GROUP BY k) SELECT * FROM o
"""
# Of `state_kinds`, and one that is not there.
KEYS = ("a", "b", "c", "d", "gone", "never")


@pytest.fixture(autouse=True)
def _no_indexes() -> Iterator[None]:
    yield
    forget_indexes()


def lookups_in(stream: Stream, memory: int = ROOM) -> Lookups:
    return Lookups(Warehouse(stream.warehouse), memory, lambda connection: None)


def written(rows: Iterable[Sequence[Any]]) -> Counter[str]:
    """Return rows as texts: NaN is not equal to itself, and lists cannot be counted."""
    return Counter(repr(tuple(row)) for row in rows)


def views_by_key(stream: Stream, lookups: Lookups) -> list[tuple[str, str]]:
    """Return the views of the only job that lookups take, each with the column of its key."""
    record = JobHistories(Warehouse(stream.warehouse)).of("result").record
    assert record is not None
    found = []
    for operator in record.operators:
        for view in operator.views:
            with contextlib.suppress(QueryError):
                lookups.find("result", view, KEYS[:1])
                [key] = operator.key_columns
                found.append((view, key))
    return found


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_state(kind: str) -> None:
    with job_of(kind) as stream:
        lookups = lookups_in(stream)
        views, kept = views_by_key(stream, lookups), versions(stream)
        assert views
        for view, key in views:
            columns = [name for name, *_ in stream.query(f'DESCRIBE state.result."{view}"')]
            for version in (kept[0], kept[len(kept) // 2], kept[-1]):
                rows = stream.query(f'FROM state.result."{view}" AT (VERSION => {version})')
                seen = [dict(zip(columns, row, strict=True)) for row in rows]
                for value in KEYS:
                    found = lookups.find("result", view, [value], version).rows
                    # Of a join the rows of both sides are of the key.
                    wanted = [tuple(row.values()) for row in seen if value in (row.get(key), row.get(f"{key}_1"))]
                    assert written(found) == written(wanted), (view, version, value)
        lookups.close()


def together(lookups: Lookups, questions: Sequence[LookupRequest]) -> list[FoundRows | None]:
    """Return what lookups find by statements that are about several keys, None for what they leave to others."""
    requests = [PendingRequest[LookupRequest, FoundRows](question) for question in questions]
    lookups._together(requests)
    return [request.answer for request in requests]


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_are_looked_up_together(kind: str) -> None:
    random_ = random.Random(kind)
    with job_of(kind) as stream:
        lookups = lookups_in(stream)
        kept = versions(stream)
        views = [view for view, _ in views_by_key(stream, lookups)]
        answered = dict.fromkeys(views, 0)
        for count in (2, 3, 6, 9):
            questions = [
                LookupRequest(
                    "result", random_.choice(views), [random_.choice(KEYS)], random_.choice([kept[0], kept[-1]])
                )
                for _ in range(count * len(views))
            ]
            alone = [lookups.find(q.job, q.operator, q.key, q.version) for q in questions]
            for question, one, found in zip(questions, alone, together(lookups, questions), strict=True):
                if found is not None:
                    answered[question.operator] += 1
                    assert (found.version, found.types) == (one.version, one.types)
                    assert written(found.rows) == written(one.rows), question
        # Of an outer join a row need not have the key.
        assert bool(answered["o"]) == ("join" not in kind)
        lookups.close()


def test_what_is_asked_together_with_what_fails() -> None:
    with Stream(COUNTS) as stream:
        for _ in range(3):
            stream.batch("t", [(k,) for k in range(8)])
        lookups = lookups_in(stream)
        keys: list[list[str | None]] = [["1"], ["x"], ["01"], ["+1"], [None], ["9"], ["1", "2"], ["1"]]
        questions = [*(LookupRequest("result", "o", key) for key in keys), LookupRequest("result", "nothing", ["1"])]
        for number, found in enumerate(together(lookups, questions)):
            if number in (0, 2, 3, 5, 7):
                assert found is not None
                assert [row[:2] for row in found.rows] == ([] if number == 5 else [(1, 3)])
            else:
                # They are asked alone, which tells what is wrong with them.
                assert found is None
        lookups.close()


def test_many_threads_find_what_one_finds() -> None:
    with Stream(COUNTS, parallelism=2) as stream:
        stream.batch("t", [(k,) for k in range(200) for _ in range(k % 5)])
        lookups = lookups_in(stream)

        def found(k: int) -> int:
            return sum(row[1] for row in lookups.find("result", "o", [str(k)]).rows)

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(found, range(200))) == [k % 5 for k in range(200)]
            failing = [threads.submit(lookups.find, "result", "o", [key]) for key in ("x", "1", "y", "2") * 4]
            for number, future in enumerate(failing):
                if number % 2:
                    assert future.result().rows[0][1] == number // 2 % 2 + 1
                else:
                    with pytest.raises(QueryError, match=f'"{"xy"[number // 2 % 2]}" is no value of key column "k"'):
                        future.result()
        lookups.close()


# Values of each type that a key can have, as they are written; what a lookup is asked for.
VALUES = {
    "STRING": ["", "a", "A", " a", "a'b", 'a"b', "a\\b", "$1", "a\0b", "ä€𝄞", "x" * 300, "NULL", "1"],
    "DOUBLE": ["0.0", "1.5", "-1.5e+300", "nan", "inf", "-inf", "0.1"],
    "FLOAT": ["0.0", "0.1", "nan"],
    "BIGINT": ["0", "-1", "9223372036854775807"],
    "DECIMAL(20, 3)": ["0.000", "-1.500", "12345678901234567.125"],
    "DECIMAL(5, 2)": ["1.50", "-1.50"],
    "BOOLEAN": ["true", "false"],
    "DATE": ["1960-02-29", "2026-01-01"],
    "TIMESTAMP(3)": ["1969-12-31 23:59:59.999", "2026-01-01 00:00:00"],
    "TIMESTAMP_LTZ(3)": ["2026-01-01 00:00:00+00", "1969-12-31 23:59:59.999+00"],
    "TIME": ["00:00:00", "23:59:59"],
    "BYTES": ["", "a", "\\x00\\xFF"],
    "ARRAY<INT>": ["[]", "[1]", "[1, NULL]"],
    "ROW<a INT, b STRING>": ["{'a': 1, 'b': x}", "{'a': NULL, 'b': y}"],
}
SQL = "SET 'sqlstream.unbounded-state' = 'allow';" + "".join(
    f"""
CREATE TABLE t{i} (k {kind}, who STRING, v INT);
CREATE TABLE r{i} (k {kind}, who STRING, n BIGINT, top INT);
INSERT INTO r{i} SELECT k, who, COUNT(*), MAX(v) FROM t{i} GROUP BY k, who;
"""
    for i, kind in enumerate(VALUES)
)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [ROOM, 0], ids=["indexed", "no room"])
def test_every_type_of_key(memory: int) -> None:
    random_ = random.Random(20)
    with Stream(SQL, parallelism=2) as stream:
        for _ in range(3):
            for i, values in enumerate(VALUES.values()):
                rows = [
                    {"k": random_.choice([*values, None]), "who": random_.choice(["x", None]), "v": n}
                    for n in range(len(values))
                ]
                stream.batch(f"t{i}", rows)
        lookups = lookups_in(stream, memory)
        for i, (kind, values) in enumerate(VALUES.items()):
            questions = [LookupRequest(f"r{i}", "aggregate_1", [k, who], 2) for k in values for who in ("x", "nobody")]
            for question, found in zip(questions, together(lookups, questions), strict=True):
                # Lists have no index, nor has anything where there is no room for one.
                assert (found is None) == (memory == 0 or kind == "ARRAY<INT>")
                if found is not None:
                    alone = lookups.find(question.job, question.operator, question.key, question.version)
                    assert written(found.rows) == written(alone.rows), question
            for version in (1, 2):
                seen = stream.query(f"SELECT k::VARCHAR, * FROM state.r{i}.aggregate_1 AT (VERSION => {version})")
                assert seen
                for k in [*values, None]:
                    for who in ("x", None, "nobody"):
                        looked = lookups.find(f"r{i}", "aggregate_1", [k, who], version).rows
                        assert written(looked) == written(row[1:] for row in seen if (row[0], row[2]) == (k, who)), (
                            k,
                            who,
                        )
        lookups.close()


def test_equal_numbers_are_one_key() -> None:
    sql = """
    SET 'sqlstream.unbounded-state' = 'allow';
    CREATE TABLE t (k DOUBLE);
    WITH o AS (SELECT k, COUNT(*) AS n FROM t GROUP BY k) SELECT * FROM o
    """
    with Stream(sql) as stream:
        stream.batch("t", [(0.0,), (-0.0,), (math.nan,), (-math.nan,)])
        lookups = lookups_in(stream)
        for text in ("0", "-0.0", "0.0e5", "nan", "-nan", "NaN"):
            [row] = lookups.find("result", "o", [text]).rows
            assert row[1] == 2
        lookups.close()


def test_versions_that_were_asked_for_leave_no_manifest_behind() -> None:
    sql = """
    SET 'sqlstream.unbounded-state' = 'allow';
    CREATE TABLE t (k STRING);
    WITH o AS (SELECT k, COUNT(*) AS n FROM t GROUP BY k) SELECT * FROM o
    """
    with Stream(sql) as stream:
        lookups = lookups_in(stream)
        for version in range(5):
            stream.batch("t", [("a",)])
            assert lookups.find("result", "o", ["a"]).rows[0][1] == version + 1
            assert lookups.find("result", "o", ["a"], version // 2).rows[0][1] == version // 2 + 1
        [(_, manifest)] = lookups._manifests._cache.values()
        assert manifest.batch == version
        lookups.close()


@pytest.mark.slow
def test_keys_that_come_and_go() -> None:
    """The outer keys are counts, which a key leaves with each row; a version is asked for before and after the next one."""
    sql = """
    SET 'sqlstream.unbounded-state' = 'allow';
    CREATE TABLE t (k INT);
    WITH o AS (SELECT n, COUNT(*) AS keys FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n) SELECT * FROM o
    """
    random_ = random.Random(3)
    rows = Counter[int]()
    wanted = list[Counter[int]]()
    with Stream(sql) as stream:
        lookups = lookups_in(stream)
        for _ in range(6):
            batch = [random_.randrange(8) for _ in range(5)]
            stream.batch("t", [(k,) for k in batch])
            rows.update(batch)
            wanted.append(Counter(rows.values()))
            newest = lookups.find("result", "o", ["1"]).version.version
            for version, counts in enumerate(wanted, newest + 1 - len(wanted)):
                for n in range(1, 8):
                    found = lookups.find("result", "o", [str(n)], None if version == newest else version)
                    assert found.version.version == version
                    assert [row[:2] for row in found.rows] == ([(n, counts[n])] if counts[n] else [])
        lookups.close()


def test_a_history_is_read_again_when_the_job_has_changed() -> None:
    sql = "CREATE TABLE t (k INT); SELECT k FROM t"
    with Stream(sql) as stream:
        histories = JobHistories(Warehouse(stream.warehouse))
        stream.batch("t", [(1,)])
        first = histories.of("result")
        assert first.newest is not None
        assert histories.of("result") is first
        stream.batch("t", [(2,)])
        second = histories.of("result")
        assert second.newest is not None
        assert second.newest.version == first.newest.version + 1
        assert second.record is first.record
        histories.forget("result")
        assert histories.of("result") is not second
        assert histories.of("nothing").newest is None


@pytest.mark.slow
def test_other_processes_change_the_job() -> None:
    """It goes on with other numbers of tasks, is dropped, and another one takes its name."""
    random_ = random.Random(5)
    with Stream(COUNTS, parallelism=1) as stream, Stream(COUNTS) as other:
        lookups = lookups_in(stream)
        for tasks in (1, 3, 2):
            if tasks > 1:
                stream.restart(tasks)
            for _ in range(2):
                stream.batch("t", [(random_.randrange(8),) for _ in range(5)])
                for version in (None, *versions(stream)):
                    at = "" if version is None else f" AT (VERSION => {version})"
                    wanted = dict(stream.query(f"SELECT k, n FROM state.result.o{at}"))
                    found = {k: lookups.find("result", "o", [str(k)], version).rows for k in range(8)}
                    assert {k: row[1] for k, rows in found.items() for row in rows} == wanted, (tasks, version)
        folder = Path(stream.warehouse, "jobs", "result")
        shutil.rmtree(folder)
        with pytest.raises(QueryError, match='job "result" does not exist'):
            lookups.find("result", "o", ["1"])
        other.batch("t", [(1,)] * 50)
        shutil.copytree(Path(other.warehouse, "jobs", "result"), folder)
        assert [row[1] for row in lookups.find("result", "o", ["1"]).rows] == [50]
        lookups.close()
