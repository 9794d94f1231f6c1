"""What a proof's job reads: rows come in a few at a time, while the job and the servers are killed."""

from __future__ import annotations

import contextlib
import json
import random
from abc import ABC, abstractmethod
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from tests.proof.servers import Kafka, Postgres

# Rows that come at a time.
SOME = 20
ACCOUNTS = 50


class Input(ABC):
    """A source; `more` puts further rows into it, and is called again when a server was gone."""

    name: str
    # Whether rows are updated, too.
    changes = False

    @property
    @abstractmethod
    def table(self) -> str:
        """The CREATE TABLE of `given`."""

    @abstractmethod
    def more(self) -> None: ...

    @property
    @abstractmethod
    def rows(self) -> set[tuple[int, int]]:
        """The rows that must come out in the end, each a key and a number."""


class Messages(Input):
    """Messages of a topic with two partitions."""

    name = "kafka"

    def __init__(self, kafka: Kafka):
        self._kafka, self._count = kafka, 0
        kafka.make("given", 2)
        settings = {
            "bootstrap.servers": kafka.address,
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            "log_level": 0,
        }
        self._producer = Producer(settings)

    @property
    def table(self) -> str:
        return f"""CREATE TABLE given (id BIGINT, v BIGINT) WITH ('connector' = 'kafka', 'topic' = 'given', 'format' = 'json',
            'properties.bootstrap.servers' = '{self._kafka.address}', 'scan.startup.mode' = 'earliest-offset')"""

    def more(self) -> None:
        for id in range(self._count, self._count + SOME):
            self._producer.produce("given", json.dumps({"id": id, "v": id * 7}).encode(), partition=id % 2)
        self._count += SOME
        self._producer.poll(0)

    @property
    def rows(self) -> set[tuple[int, int]]:
        assert not self._producer.flush(240)
        return {(id, id * 7) for id in range(self._count)}


class Files(Input):
    """Files of JSON lines that appear in a folder."""

    name = "files"

    def __init__(self, folder: Path):
        self._folder, self._count = folder, 0
        folder.mkdir()

    @property
    def table(self) -> str:
        return f"""CREATE TABLE given (id BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '{self._folder}',
            'format' = 'json', 'source.monitor-interval' = '100 ms')"""

    def more(self) -> None:
        lines = "".join(f'{{"id": {id}, "v": {id * 7}}}\n' for id in range(self._count, self._count + SOME))
        making = self._folder / f".{self._count}"
        making.write_text(lines)
        making.rename(self._folder / f"{self._count:09d}.json")
        self._count += SOME

    @property
    def rows(self) -> set[tuple[int, int]]:
        return {(id, id * 7) for id in range(self._count)}


class Changes(Input):
    """Accounts of a PostgreSQL table: each transaction moves money from one to another one, so that the sum is always zero."""

    name = "changes"
    changes = True

    def __init__(self, postgres: Postgres):
        self._postgres, self._random, self._money = postgres, random.Random(5), [0] * ACCOUNTS
        with postgres.connect() as con:
            con.execute("CREATE TABLE given (id BIGINT PRIMARY KEY, v BIGINT NOT NULL, moved BIGINT)")
            con.execute("ALTER TABLE given REPLICA IDENTITY FULL")
            con.execute(f"INSERT INTO given SELECT i, 0, 0 FROM generate_series(0, {ACCOUNTS - 1}) AS i")

    @property
    def table(self) -> str:
        return f"""CREATE TABLE given (id BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'postgres-cdc',
            'url' = '{self._postgres.address}', 'table-name' = 'given', 'slot.name' = 'proof')"""

    def more(self) -> None:
        for _ in range(SOME // 2):
            one, other = self._random.sample(range(ACCOUNTS), 2)
            self._move(one, other, self._random.randint(1, 100))

    def _move(self, one: int, other: int, amount: int) -> None:
        after = {one: self._money[one] - amount, other: self._money[other] + amount}
        while True:
            # Whether a transaction is in whose commit was not answered does not matter: it sets values.
            with contextlib.suppress(psycopg.Error), self._postgres.connect() as con, con.transaction():
                for id, money in after.items():
                    con.execute("UPDATE given SET v = %s WHERE id = %s", [money, id])
                break
        for id, money in after.items():
            self._money[id] = money

    @property
    def rows(self) -> set[tuple[int, int]]:
        return set(enumerate(self._money))
