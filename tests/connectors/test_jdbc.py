"""Tables of Flink's connector `jdbc`: they are tables of the connector of their database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
import pytest

from sqlstream.connectors.jdbc import translated
from sqlstream.connectors.translation import UntranslatableTable
from sqlstream.errors import SqlStreamError, UnsupportedError
from sqlstream.testing import Stream

SCRIPT = """
CREATE TABLE given (id INT, name STRING);
CREATE TABLE users (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc', 'url' = '{url}',
    'table-name' = 'users', 'driver' = 'a.b.Driver', 'sink.buffer-flush.max-rows' = '1'{more});
INSERT INTO users SELECT id, name FROM given;
CREATE TABLE asked (id INT, p AS PROCTIME());
CREATE TABLE named (id INT, name STRING);
INSERT INTO named SELECT a.id, u.name FROM asked AS a JOIN users FOR SYSTEM_TIME AS OF a.p AS u ON u.id = a.id;
"""


def write_and_look_up(url: str, more: str = "") -> list[tuple[object, ...]]:
    with Stream(SCRIPT.format(url=url, more=more)) as stream:
        stream.batch("given", [(1, "ann"), (2, "bob"), (1, "anna")])
        stream.batch("asked", [(1,), (3,)])
        return stream.query("SELECT * FROM named")


def test_files(tmp_path: Path) -> None:
    lite, duck = tmp_path / "a.db", tmp_path / "a.duckdb"
    create = "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR)"
    with closing(sqlite3.connect(lite)) as con:
        con.execute(create)
    with duckdb.connect(str(duck)) as other:
        other.execute(create)
    for kind, path in (("sqlite", lite), ("duckdb", duck)):
        cached = ", 'lookup.cache.max-rows' = '10', 'lookup.cache.ttl' = '1 min'"
        assert write_and_look_up(f"jdbc:{kind}:{path}", cached) == [(1, "anna")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_servers(kind: str, request: pytest.FixtureRequest) -> None:
    database = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb").database()
    database.run("CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(100))")
    place = urlsplit(database.url)
    login = f", 'username' = '{unquote(place.username or '')}'"
    if place.password:
        login += f", 'password' = '{unquote(place.password)}'"
    port = f":{place.port}" if place.port else ""
    query = "?" + place.query if place.query else ""
    url = f"jdbc:{kind}://{place.hostname or 'localhost'}{port}{place.path}{query}"
    assert write_and_look_up(url, login) == [(1, "anna")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"url": "jdbc:postgresql://db:5432/shop?currentSchema=sales&ssl=true&ApplicationName=x", "username": "a@b"},
            {
                "connector": "postgresql",
                "url": "postgresql://a%40b@db:5432/shop?options=-csearch_path%3Dsales&sslmode=verify-full",
            },
        ),
        (
            {"url": "jdbc:postgresql:shop", "username": "ann", "password": "p/w"},
            {"connector": "postgresql", "url": "postgresql://ann:p%2Fw@localhost/shop"},
        ),
        (
            {"url": "jdbc:mariadb://[::1]:3307/shop?user=ann&password=x&serverTimezone=UTC&useSSL=false"},
            {"connector": "mysql", "url": "mysql://ann:x@[::1]:3307/shop"},
        ),
        ({"url": "jdbc:sqlite:/a/b.db?cache=shared"}, {"connector": "sqlite", "path": "/a/b.db"}),
        (
            {
                "url": "jdbc:duckdb:a.duckdb",
                "lookup.cache": "PARTIAL",
                "lookup.partial-cache.caching-missing-key": "false",
            },
            {
                "connector": "duckdb",
                "path": "a.duckdb",
                "lookup.cache": "PARTIAL",
                "lookup.partial-cache.cache-missing-key": "false",
            },
        ),
    ],
)
def test_options(options: Mapping[str, str], expected: Mapping[str, str]) -> None:
    result = translated({"connector": "jdbc", "table-name": "s.t", **options})
    assert result.options == {**expected, "table": "s.t"}
    assert set(result.origins) == set(result.options)
    assert set(result.origins.values()) <= {"connector", "table-name", *options}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jdbc:oracle:thin:@db", 'the database "oracle"'),
        ("postgresql://db/shop", "no url of a database"),
        ("", "no url of a database"),
        ("jdbc:mysql://db/shop?serverTimezone=Asia/Tokyo", 'the parameter "serverTimezone=Asia/Tokyo"'),
        ("jdbc:mysql://db/shop?zeroDateTimeBehavior=convertToNull", 'the parameter "zeroDateTimeBehavior'),
        ("jdbc:mysql://db:port/shop", "not a url"),
        ("jdbc:sqlite::memory:", "a database in memory"),
        ("jdbc:duckdb:", "a database in memory"),
    ],
)
def test_what_is_refused(url: str, message: str) -> None:
    with pytest.raises(UntranslatableTable, match=message.replace("?", r"\?")):
        translated({"connector": "jdbc", "url": url, "table-name": "t"})
    with pytest.raises(UnsupportedError, match=message.replace("?", r"\?")):
        Stream(f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = 't')")


def test_options_elsewhere(tmp_path: Path) -> None:
    base = f"CREATE TABLE a (id INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{tmp_path}/x.db', 'table-name' = 'a');"
    with Stream(f"{base} CREATE TABLE b WITH ('table' = 'b') LIKE a; CREATE TABLE given (id INT)") as stream:
        with pytest.raises(SqlStreamError, match='option "tabel" does not exist for connector "sqlite"'):
            stream.script("CREATE TABLE c WITH ('tabel' = 'c') LIKE a")
        with pytest.raises(SqlStreamError, match="jdbc"):
            stream.script("INSERT INTO b /*+ OPTIONS('connector' = 'jdbc', 'url' = 'jdbc:x:y') */ SELECT id FROM given")
