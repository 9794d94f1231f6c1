"""Which window joins are said to join sessions that seldom agree."""

from __future__ import annotations

import pytest

from tests.kinds import last_job

TABLES = """
CREATE TABLE a (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE b (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE out (k STRING);
"""
SESSIONS = "SESSION(TABLE {} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)"
COUNTS = f"(SELECT k, window_start, window_end, COUNT(*) AS n FROM {SESSIONS} GROUP BY k, window_start, window_end)"
MINUTES = "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
SAME = "x.window_start = y.window_start AND x.window_end = y.window_end AND x.k = y.k"


@pytest.mark.parametrize(
    ("left", "right", "warns"),
    [
        (SESSIONS.format("a"), SESSIONS.format("b"), True),
        (COUNTS.format("a"), COUNTS.format("b"), True),
        (COUNTS.format("a"), SESSIONS.format("b"), True),
        (SESSIONS.format("a"), SESSIONS.format("a").replace("'5'", "'6'"), True),
        (SESSIONS.format("a"), MINUTES.format("b"), True),
        # A row of a session beside what was counted in it.
        (COUNTS.format("a"), SESSIONS.format("a"), False),
        (MINUTES.format("a"), MINUTES.format("b"), False),
    ],
)
def test_joins_of_sessions_of_two_inputs(left: str, right: str, warns: bool) -> None:
    job = last_job(f"{TABLES} INSERT INTO out SELECT x.k FROM {left} x JOIN {right} y ON {SAME}")
    shown = [warning.render() for warning in job.warnings]
    found = [text for text in shown if text.startswith("warning: window JOIN of sessions")]
    assert bool(found) == warns, shown
    if warns:
        assert "UNION ALL" in found[0]
        assert "SESSION" in found[0]
        assert " --> " in found[0]


def test_of_two_sinks_below_which_is_one_join_it_is_said_once() -> None:
    view = f"CREATE VIEW v AS SELECT x.k FROM {SESSIONS.format('a')} x LEFT JOIN {SESSIONS.format('b')} y ON {SAME};"
    inserts = "INSERT INTO out SELECT k FROM v; INSERT INTO out SELECT upper(k) FROM v;"
    job = last_job(f"{TABLES} {view} EXECUTE STATEMENT SET BEGIN {inserts} END;")
    assert len([w for w in job.warnings if "of sessions" in w.message]) == 1
