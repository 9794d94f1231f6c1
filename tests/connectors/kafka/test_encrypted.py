"""A broker that speaks TLS: source and sink trust it, and it them, or an error says who does not trust whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from sqlstream.errors import OutageError, UsageError
from sqlstream.testing import Stream
from tests.certificates import Authority
from tests.connectors.kafka.topics import Topic
from tests.connectors.kafka.written import make_topic, messages
from tests.kafka_broker import USERS, Broker
from tests.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

[(USER, PASSWORD)] = USERS.items()
JOB = """
CREATE TABLE given (n INT) WITH ('connector' = 'kafka', 'topic' = '{given}', 'format' = 'json',
    'scan.bounded.mode' = 'latest-offset', {source});
CREATE TABLE copied (n INT) WITH ('connector' = 'kafka', 'topic' = '{copied}', 'format' = 'csv',
    'sink.delivery-guarantee' = 'exactly-once', {sink});
INSERT INTO copied SELECT n FROM given;
"""


class Encrypted(NamedTuple):
    broker: Broker
    ca: Path
    ann: Path
    other_ca: Path

    def options(self, listener: str, more: Mapping[str, object], host: str = "127.0.0.1") -> str:
        address = self.broker.address(listener).replace("127.0.0.1", host)
        given = {"bootstrap.servers": address, "security.protocol": listener, **more}
        return ", ".join(f"'properties.{name.replace('_', '.')}' = '{value}'" for name, value in given.items())

    def ssl(self, host: str = "127.0.0.1", **more: object) -> str:
        """Return the options of Java's clients, with stores in PEM."""
        stores: dict[str, object] = {"ssl_truststore_location": self.ca, "ssl_truststore_type": "PEM"}
        own = {"ssl_keystore_location": self.ann, "ssl_keystore_type": "PEM"}
        return self.options("SSL", {**stores, **own, **more}, host)

    def sasl_ssl(self) -> str:
        """Return librdkafka's options, with the authority's certificate itself."""
        login = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
        return self.options("SASL_SSL", {"ssl_ca_pem": self.ca.read_text(), **login})


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("encrypted")
    ours, other = Authority("ours"), Authority("another one")
    certificate = ours.give("broker", folder / "broker.pem")
    with Broker(folder / "kafka", users=USERS, certificate=certificate) as broker:
        ca, ann = ours.write(folder / "ca.pem"), ours.give("ann", folder / "ann.pem")
        yield Encrypted(broker, ca, ann, other.write(folder / "other.pem"))


@pytest.mark.one_in(2, of="brokers of their own")
@pytest.mark.parametrize("source", ["SASL_SSL", pytest.param("SSL", marks=pytest.mark.thorough)])
def test_source_and_sink_are_encrypted(encrypted: Encrypted, source: str) -> None:
    servers = encrypted.broker.servers
    given, copied = Topic(servers), make_topic(servers)
    given.send({"n": 1}, {"n": 2})
    [read, write] = [encrypted.ssl(), encrypted.sasl_ssl()][:: 1 if source == "SSL" else -1]
    with Stream(JOB.format(given=given.name, copied=copied, source=read, sink=write)) as stream:
        stream.finish()
    # A broker that is new may take a while to show what is committed.
    wait_until(lambda: sorted(m.value or "" for m in messages(servers, copied)) == ["1", "2"])


WRONG = {
    "authority": ("the certificate of the broker at 127.0.0.1:", "cannot be verified", "certificate"),
    "host": ("the certificate of the broker at localhost:", "is for another host", "Hostname mismatch"),
    "nobody": ("the broker refuses the certificate of the client, or wants one", "", "alert bad certificate"),
}


@pytest.mark.parametrize(("of", "wrong"), [*(("source", wrong) for wrong in WRONG), ("sink", "authority")])
@pytest.mark.thorough
def test_who_does_not_trust_whom_is_said(encrypted: Encrypted, of: str, wrong: str) -> None:
    options = {
        "authority": encrypted.ssl(ssl_truststore_location=encrypted.other_ca),
        "host": encrypted.ssl(host="localhost"),
        "nobody": encrypted.options("SSL", {"ssl_ca_location": encrypted.ca}),
    }[wrong]
    servers = encrypted.broker.servers
    given, copied = Topic(servers), make_topic(servers)
    given.send({"n": 1})
    both = {"source": encrypted.ssl(), "sink": encrypted.ssl(), of: options}
    with pytest.raises(UsageError) as raised, Stream(JOB.format(given=given.name, copied=copied, **both)) as stream:
        stream.finish()
    begins, ends, detail = WRONG[wrong]
    table = "given" if of == "source" else "copied"
    assert raised.value.message.startswith(f'table "{table}": {begins}')
    assert raised.value.message.endswith(ends)
    assert detail in (raised.value.detail or "")
    # To start again does not help.
    assert not isinstance(raised.value, OutageError)


@pytest.mark.thorough
def test_a_host_that_the_certificate_does_not_name_is_trusted_if_asked_for(encrypted: Encrypted) -> None:
    given = Topic(encrypted.broker.servers)
    given.send({"n": 1})
    # The broker names itself by its address, which its certificate has.
    options = encrypted.ssl(host="localhost", ssl_endpoint_identification_algorithm="")
    script = JOB.partition("CREATE TABLE copied")[0].format(given=given.name, source=options)
    with Stream(f"{script} SELECT n FROM given") as stream:
        stream.finish()
        assert stream.rows() == [(1,)]
