"""Threads of one process read the partitions of a topic beside each other: each message comes once."""

from __future__ import annotations

from pathlib import Path

from sqlstream.session.session import Session
from tests.connectors.kafka.topics import Topic
from tests.kinds import job_of
from tests.processes import SECONDS

PARTITIONS, EACH = 4, 20_000


def test_each_message_is_read_once(kafka: str, tmp_path: Path) -> None:
    topic = Topic(kafka, PARTITIONS)
    for partition in range(PARTITIONS):
        for n in range(EACH):
            topic.add(b'{"n": %d, "p": %d}' % (n, partition), partition=partition)
        topic.send(partition=partition)
    options = {"execution.engine": "local", "parallelism.default": str(PARTITIONS)}
    connection = f"'connector' = 'kafka', 'topic' = '{topic.name}', 'properties.bootstrap.servers' = '{kafka}'"
    with Session(str(tmp_path), conf=options) as session:
        job = session.sql(f"""
            CREATE TABLE messages (n BIGINT, p BIGINT) WITH (
                {connection}, 'format' = 'json', 'scan.startup.mode' = 'earliest-offset',
                'scan.bounded.mode' = 'latest-offset', 'scan.max-rows-per-batch' = '10000'
            );
            CREATE TABLE counted (p BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (p) NOT ENFORCED);
            INSERT INTO counted SELECT p, COUNT(*), SUM(n) FROM messages GROUP BY p
        """)
        assert job_of(job).wait(SECONDS)
        found = session.query("FROM counted ORDER BY p").fetchall()
    assert found == [(p, EACH, EACH * (EACH - 1) // 2) for p in range(PARTITIONS)]
