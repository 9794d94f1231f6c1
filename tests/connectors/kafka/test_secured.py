"""A broker that asks who is there: source and sink log in, and nothing shows or keeps a password."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as confluent_admin

from sqlstream import secrets
from sqlstream.errors import SqlStreamError
from sqlstream.testing import Stream
from tests.connectors.kafka.topics import Topic
from tests.connectors.kafka.written import make_topic, messages
from tests.connectors.test_secrets import leaks
from tests.kafka_broker import USERS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Its types leave out half of the names.
ADMIN: Any = confluent_admin
[(USER, PASSWORD)] = USERS.items()
WRONG = "hunter2-and-a-half"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username="
LOGINS = {
    "PLAIN": """'properties.sasl.jaas.config' = '{jaas}"{user}" password="{password}";'""",
    "SCRAM-SHA-256": "'properties.sasl.username' = '{user}', 'properties.sasl.password' = '{password}'",
}
JOB = """
CREATE TABLE given (n INT) WITH ('connector' = 'kafka', 'topic' = '{given}', 'format' = 'json',
    'scan.bounded.mode' = 'latest-offset', {login});
CREATE TABLE copied (n INT) WITH ('connector' = 'kafka', 'topic' = '{copied}', 'format' = 'csv',
    'sink.delivery-guarantee' = 'exactly-once', {login});
INSERT INTO copied SELECT n FROM given;
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    secrets._secret_values.clear()


@pytest.fixture
def secured(kafka: str) -> str:
    """The address at which the broker wants to know who is there."""
    broker = ADMIN.ConfigResource(ADMIN.ConfigResource.Type.BROKER, "1")
    admin = ADMIN.AdminClient({"bootstrap.servers": kafka})
    [answer] = admin.describe_configs([broker]).values()
    found = re.search(r"SASL_PLAINTEXT://([\w.:]+)", answer.result(60)["listeners"].value)
    if found is None:
        pytest.skip("this broker asks nobody")
    return found[1]


def login(secured: str, mechanism: str, user: str, password: str) -> str:
    given = LOGINS[mechanism].format(jaas=JAAS, user=user, password=password)
    return (
        f"'properties.bootstrap.servers' = '{secured}', 'properties.security.protocol' = 'SASL_PLAINTEXT', "
        f"'properties.sasl.mechanism' = '{mechanism}', {given}"
    )


@pytest.mark.parametrize("mechanism", LOGINS)
def test_source_and_sink_log_in(kafka: str, secured: str, mechanism: str) -> None:
    user, password = USER, PASSWORD
    if mechanism != "PLAIN":
        user, password = f"bob-{uuid.uuid4().hex[:6]}", "battery-staple"
        scram = ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_256, 4096)
        told = [ADMIN.UserScramCredentialUpsertion(user, scram, password.encode())]
        admin = ADMIN.AdminClient({"bootstrap.servers": kafka})
        [made] = admin.alter_user_scram_credentials(told).values()
        made.result(60)
    given, copied = Topic(kafka), make_topic(kafka)
    given.send({"n": 1}, {"n": 2})
    script = JOB.format(given=given.name, copied=copied, login=login(secured, mechanism, user, password))
    with Stream(script) as stream:
        stream.finish()
        stream.restart()
        shown = f"{stream.query('SELECT * FROM sqlstream.jobs')}{stream.query('SELECT * FROM sqlstream.watermarks')}"
        assert password not in shown
        assert leaks(Path(stream.warehouse), password) == []
    assert sorted(m.value or "" for m in messages(kafka, copied)) == ["1", "2"]


@pytest.mark.parametrize(
    ("wrong", "mechanism"),
    [("source", "SCRAM-SHA-256"), ("sink", "PLAIN"), pytest.param("source", "PLAIN", marks=pytest.mark.thorough)],
)
def test_a_wrong_password_is_said_without_it(kafka: str, secured: str, wrong: str, mechanism: str) -> None:
    refused = login(secured, mechanism, USER, WRONG)
    open_ = f"'properties.bootstrap.servers' = '{kafka}'"
    given, copied = Topic(kafka), make_topic(kafka)
    given.send({"n": 1})
    before, after = JOB.format(given=given.name, copied=copied, login="{}").split("CREATE TABLE copied")
    script = "CREATE TABLE copied".join(
        part.replace("{}", refused if wrong == of else open_) for of, part in (("source", before), ("sink", after))
    )
    table, said = (
        ("given", "Kafka refuses the access") if wrong == "source" else ("copied", "the brokers refuse to talk")
    )
    with pytest.raises(SqlStreamError) as raised, Stream(script) as stream:
        stream.finish()
    assert raised.value.message.startswith(f'table "{table}": {said}')
    assert "uthentication failed" in (raised.value.detail or "")
    assert WRONG not in raised.value.render()
