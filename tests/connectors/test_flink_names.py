"""Tables with options as Flink has them, for Iceberg and Delta Lake, and before Flink 1.11."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.flink_1_10 import today
from sqlstream.connectors.flink_lakes import translated_delta, translated_iceberg
from sqlstream.errors import SourceText, SqlStreamError, UnsupportedError
from sqlstream.session.porting import port
from tests.connectors.lake.jobs import run
from tests.connectors.lake.test_delta import of_delta
from tests.kinds import of_type

REST = {"connector": "iceberg", "catalog-name": "lake", "catalog-type": "rest", "uri": "http://r"}
CREATED = {"sink.create-table": "true"}


@pytest.mark.parametrize(
    ("flinks", "expected"),
    [
        (REST, {"table": "default.t"}),
        ({**REST, "database-name": "shop", "table-name": "orders"}, {"table": "shop.orders"}),
        (
            {**REST, "catalog-table": "o", "streaming": "true"},
            {"table": "default.o", "source.monitor-interval": "60 s"},
        ),
        (
            {**REST, "streaming": "true", "monitor-interval": "1s"},
            {"table": "default.t", "source.monitor-interval": "1s"},
        ),
        ({**REST, "s3.endpoint": "http://s"}, {"table": "default.t", "catalog.s3.endpoint": "http://s"}),
        (
            {**REST, "format-version": "2", "write.parquet.page-size": "1"},
            {"table": "default.t", "iceberg.format-version": "2", "iceberg.write.parquet.page-size": "1"},
        ),
        # What LIKE takes, and what this table says.
        ({**REST, "table": "shop.orders", "catalog-table": "o"}, {"table": "shop.o"}),
        ({**REST, "sink.create-table": "false"}, {"table": "default.t", "sink.create-table": "false"}),
    ],
)
def test_options_of_iceberg(flinks: Mapping[str, str], expected: Mapping[str, str]) -> None:
    base = {"connector": "iceberg", "catalog": "lake", "catalog.type": "rest", "catalog.uri": "http://r"}
    result = translated_iceberg("t", flinks)
    assert result.options == {**base, **CREATED, **expected}
    assert set(result.origins) == set(result.options)
    assert set(result.origins.values()) <= set(flinks)
    # A second time, as a hint or LIKE takes them.
    assert translated_iceberg("u", result.options).options == result.options


def test_own_options_stay() -> None:
    own = {"connector": "iceberg", "table": "db.t", "catalog.type": "sql"}
    assert translated_iceberg("t", own).options == own
    own = {"connector": "delta", "path": "t"}
    assert translated_delta(own).options == own


def test_options_of_delta() -> None:
    delta = {"connector": "delta", "table_path": "t"}
    assert translated_delta(delta).options == {"connector": "delta", "path": "t", **CREATED}
    assert translated_delta({**delta, "versionAsOf": "3"}).options["scan.version"] == "3"
    latest = translated_delta({**delta, "startingVersion": "latest"}).options
    assert latest["scan.startup.mode"] == "latest"
    assert "scan.startup.version" not in latest


def test_like_is_a_table_of_its_own() -> None:
    compiler = Compiler()
    script = f"CREATE TABLE lake (a INT) WITH ({clause(REST)}); CREATE TABLE other (b INT) LIKE lake; ALTER TABLE other ADD c INT"
    compiler.scripts([SourceText("s", f"{script}; CREATE TABLE same WITH ('catalog-table' = 'lake') LIKE lake")])
    names = {
        name: of_type(Table, compiler.catalog.relation(name)).options["table"] for name in ("lake", "other", "same")
    }
    compiler.close()
    assert names == {"lake": "default.lake", "other": "default.other", "same": "default.lake"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'catalog-type' = 'hadoop', 'warehouse' = 's3a://w'", 'the catalog "hadoop" of Iceberg'),
        ("'catalog-impl' = 'a.b.C'", 'the catalog "a.b.C" of Iceberg'),
    ],
)
def test_catalogs_that_are_refused(options: str, message: str) -> None:
    compiler = Compiler()
    with pytest.raises(UnsupportedError, match=message) as raised:
        compiler.scripts([SourceText("s", f"CREATE TABLE t (a INT) WITH ('connector' = 'iceberg', {options})")])
    compiler.close()
    assert raised.value.span is not None
    assert raised.value.span.text in ("'catalog-type'", "'catalog-impl'", "'hadoop'", "'a.b.C'")


def test_a_table_of_delta_is_created_and_written(tmp_path: Path) -> None:
    script = f"""CREATE TABLE given (k INT) WITH ('connector' = 'datagen', 'fields.k.kind' = 'sequence',
    'fields.k.start' = '1', 'fields.k.end' = '3');
    CREATE TABLE lake (k INT) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}/lake');
    INSERT INTO lake SELECT k FROM given"""
    run(str(tmp_path), script)
    assert of_delta(tmp_path / "lake", "SELECT k FROM delta ORDER BY k") == [(1,), (2,), (3,)]


KAFKA = {
    "connector.type": "kafka",
    "connector.version": "universal",
    "connector.topic": "t",
    "connector.startup-mode": "earliest-offset",
    "connector.properties.0.key": "bootstrap.servers",
    "connector.properties.0.value": "k:9092",
    "connector.properties.group.id": "g",
    "update-mode": "append",
    "format.type": "json",
    "format.derive-schema": "true",
    "format.fail-on-missing-field": "true",
}
TODAY = {
    "connector": "kafka",
    "topic": "t",
    "scan.startup.mode": "earliest-offset",
    "properties.bootstrap.servers": "k:9092",
    "properties.group.id": "g",
    "format": "json",
    "json.fail-on-missing-field": "true",
}


def clause(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


def test_options_before_1_11_are_refused_with_those_of_today() -> None:
    assert today(KAFKA) == TODAY
    compiler = Compiler()
    with pytest.raises(UnsupportedError, match=r"options of Flink before 1\.11") as raised:
        compiler.scripts([SourceText("s", f"CREATE TABLE t (a INT) WITH ({clause(KAFKA)})")])
    assert raised.value.hint == f"Write WITH ({clause(TODAY)})."
    compiler.scripts([SourceText("s", f"CREATE TABLE t (a INT) WITH ({clause(TODAY)})")])
    compiler.close()


def test_a_script_is_ported_to_those_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_KAFKA", "hunter22")
    options = {**KAFKA, "connector.properties.sasl.password": "${SECRET_OF_KAFKA}"}
    compiler = Compiler()
    result = port(SourceText("s", f"CREATE TABLE t (a INT)\nWITH ({clause(options)});\nSELECT a FROM t"), compiler)
    compiler.close()
    assert [one.outcome for one in result.statements] == ["connector", "runs"]
    assert "'properties.sasl.password' = '${SECRET_OF_KAFKA}'" in result.script
    assert "hunter22" not in result.script
    again = Compiler()
    try:
        again.scripts([SourceText("s", result.script)])
        table = of_type(Table, again.catalog.relation("t"))
        assert {key: table.options[key] for key in TODAY if key in table.options} == TODAY
    except SqlStreamError as error:
        pytest.fail(error.render())
    finally:
        again.close()
