"""Jobs between servers that go on with a changed query: what was committed there stays, and each row is there once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from sqlstream import SqlStreamError
from tests.connectors.kafka.topics import Topic
from tests.connectors.kafka.written import messages
from tests.forked import start_python
from tests.jobs.savepoint_jobs import open_session
from tests.jobs.test_restoring_from_servers import LIVE, started
from tests.jobs.upgrades.test_upgraded_sinks import run
from tests.postgres_server import Database, PostgresServer
from tests.processes import SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

SINKS = """
CREATE TABLE kept (k BIGINT, x BIGINT)
WITH ('connector' = 'postgresql', 'url' = '{url}', 'table' = 'kept', 'sink.create-table' = 'true');
CREATE TABLE counted (p BIGINT, n BIGINT, PRIMARY KEY (p) NOT ENFORCED)
WITH ('connector' = 'postgresql', 'url' = '{url}', 'table' = 'counted', 'sink.create-table' = 'true');
SET 'pipeline.name' = 'j';
EXECUTE STATEMENT SET BEGIN
INSERT INTO sent SELECT k, {x} AS x FROM t;
INSERT INTO kept SELECT k, {x} AS x FROM t;
INSERT INTO counted WITH by_part AS (SELECT k % 2 AS p, count(*) AS n FROM t {where} GROUP BY k % 2) SELECT p, n FROM by_part;
END;
"""


def killed(folder: Path, script: str, rows: int, where: str) -> None:
    """Let a process upgrade the job of a script, or go on with it, until it kills itself."""
    file = folder / "job.sql"
    file.write_text(script)
    program = "tests.jobs.upgrades.mortal_upgrades"
    process = start_python("-m", program, str(folder), str(file), str(rows), where)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == -9, output


class Ends:
    """Where the job reads and writes, and the scripts of both queries."""

    def __init__(self, servers: str, database: Database, folder: Path):
        self.servers, self.database, self.folder = servers, database, folder
        self.given, self.sent = Topic(servers, 2), Topic(servers)
        once = f", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{self.sent.name}'"
        tables = self.given.table("k BIGINT", LIVE)
        tables += self.sent.table("k BIGINT, x BIGINT", f"{once}, 'scan.bounded.mode' = 'unbounded'", name="sent")
        self.old = tables + SINKS.format(url=database.url, x=1, where="")
        self.new = tables + SINKS.format(url=database.url, x=10, where="WHERE k <> 5")

    def check(self, rows: list[tuple[int, int]], counted: list[tuple[int, int]]) -> None:
        found = [json.loads(m.value or "") for m in messages(self.servers, self.sent.name)]
        assert sorted((row["k"], row["x"]) for row in found) == rows
        assert self.database.run("SELECT k, x FROM kept ORDER BY k, x") == rows
        assert self.database.run("SELECT p, n FROM counted ORDER BY p") == counted


@pytest.mark.thorough
def test_sinks_have_each_row_once_wherever_the_job_or_its_upgrade_is_killed(
    kafka: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    ends = Ends(kafka, postgres.database(), tmp_path)
    ends.given.send({"k": 1}, {"k": 2})
    run(tmp_path, ends.old, 2)
    ends.given.send({"k": 3}, partition=1)
    killed(tmp_path, ends.old, 3, "written")
    written = [(1, 1), (2, 1), (3, 1)]
    ends.check(written, [(0, 1), (1, 2)])
    # A batch made anew would be one with this row, too.
    ends.given.send({"k": 4}, partition=1)
    for where in ("after 12", "laid-out"):
        killed(tmp_path, ends.new, 3, where)
        ends.check(written, [(0, 1), (1, 2)])
    killed(tmp_path, ends.new, 4, "written")
    ends.given.send({"k": 5})
    run(tmp_path, ends.new, 5, upgrade=True)
    written += [(4, 10), (5, 10)]
    ends.check(written, [(0, 2), (1, 2)])
    # What the servers have forbids the way back, and the job stays as it is.
    with open_session(tmp_path) as session:
        [(kept,)] = session.query("SELECT savepoint FROM sqlstream.savepoints WHERE version = 0").fetchall()[-1:]
        with pytest.raises(SqlStreamError, match="cannot go back to savepoint") as refused:
            started(session, ends.old, kept)
        tables = '"sent" (kafka), "kept" (postgresql), "counted" (postgresql).'
        assert (refused.value.detail or "").endswith(f"in tables outside of the warehouse: {tables}")
    ends.given.send({"k": 6})
    run(tmp_path, ends.new, 6)
    ends.check([*written, (6, 10)], [(0, 3), (1, 2)])


CHANGES = """
SET 'pipeline.name' = 'j';
INSERT INTO sent WITH by_part AS (SELECT k % 2 AS p, count(*) AS n FROM t {where} GROUP BY k % 2) SELECT p, n FROM by_part;
"""


def test_changes_in_a_topic_are_not_upgraded_while_a_batch_has_begun(kafka: str, tmp_path: Path) -> None:
    """The new query could not take back what the topic may have of that batch, unless the old one commits it first."""
    given, sent = Topic(kafka), Topic(kafka)
    once = f", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{sent.name}'"
    tables = given.table("k BIGINT", LIVE)
    more = f"{once}, 'scan.bounded.mode' = 'unbounded'"
    tables += sent.table("p BIGINT, n BIGINT", more, name="sent", format="debezium-json")
    old, new = (tables + CHANGES.format(where=where) for where in ("", "WHERE k <> 5"))

    def counted() -> list[tuple[int, int]]:
        left = Counter[tuple[int, int]]()
        for m in messages(kafka, sent.name):
            change = json.loads(m.value or "")
            for side, weight in (("before", -1), ("after", 1)):
                if change[side] is not None:
                    left[change[side]["p"], change[side]["n"]] += weight
        assert set(left.values()) <= {0, 1}
        return sorted(+left)

    given.send({"k": 1}, {"k": 2})
    run(tmp_path, old, 2)
    given.send({"k": 3})
    killed(tmp_path, old, 3, "written")
    assert counted() == [(0, 1), (1, 2)]
    with pytest.raises(SqlStreamError, match="cannot go on with this query") as refused:
        run(tmp_path, new, 3, upgrade=True)
    assert 'table "sent": it may have rows of a batch that has begun' in (refused.value.detail or "")
    assert counted() == [(0, 1), (1, 2)]
    run(tmp_path, old, 3)
    given.send({"k": 5}, {"k": 7})
    run(tmp_path, new, 5, upgrade=True)
    assert counted() == [(0, 1), (1, 3)]
