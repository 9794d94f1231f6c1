"""A schema registry over https: it is trusted where its authority is, and the error says so where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.catalog import Table
from sqlstream.connectors.formats.schema_registry import SchemaRegistry
from sqlstream.errors import JobError, OutageError
from tests.certificates import Authority
from tests.connectors.formats.registry_server import serving


def test_whom_a_client_trusts(tmp_path: Path) -> None:
    ours = Authority("ours")
    ca, other = ours.write(tmp_path / "ca.pem"), Authority("another one").write(tmp_path / "other.pem")

    def newest(url: str, file: Path | None) -> str:
        options = {"avro-confluent.url": url}
        if file is not None:
            options["avro-confluent.ssl.truststore.location"] = str(file)
        return SchemaRegistry.of(Table("t", (), options=options), "avro-confluent").newest("s").text

    with serving(ours.give("registry", tmp_path / "registry.pem")) as server:
        server.add("s", "long")
        assert server.url.startswith("https://")
        assert newest(server.url, ca) == "long"
        for untrusted in (other, None):
            with pytest.raises(JobError, match=r"the certificate of the schema registry at 127\.0\.0\.1:") as raised:
                newest(server.url, untrusted)
            assert not isinstance(raised.value, OutageError)
            assert "ssl.truststore.location" in (raised.value.hint or "")
        with pytest.raises(JobError, match="for another host"):
            newest(server.url.replace("127.0.0.1", "localhost"), ca)
        (tmp_path / "no.pem").write_text("nothing")
        with pytest.raises(JobError, match="cannot be read as PEM"):
            newest(server.url, tmp_path / "no.pem")


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    ours = Authority("ours")
    options = {
        "avro-confluent.ssl.truststore.location": str(ours.write(tmp_path / "ca.pem")),
        "avro-confluent.ssl.keystore.location": str(ours.give("ann", tmp_path / "ann.pem")),
    }
    with serving(ours.give("registry", tmp_path / "registry.pem"), clients=tmp_path / "ca.pem") as server:
        server.add("s", "int")
        table = Table("t", (), options={**options, "avro-confluent.url": server.url})
        assert SchemaRegistry.of(table, "avro-confluent").newest("s").text == "int"
