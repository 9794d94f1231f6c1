"""Tables of a MariaDB server that jobs write: types, changes, batches that count once, and what is refused."""

from __future__ import annotations

import datetime
import ipaddress
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sqlstream.connectors.mysql import sink
from sqlstream.errors import BindError, DataError, JobError, OutageError, UsageError
from sqlstream.testing import Stream
from tests.connectors import database_sinks
from tests.connectors.database_sinks import COUNTS, check_refused, copying, looking_up
from tests.mariadb_server import MariaDBServer, MySQLDatabase

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def database(mariadb: MariaDBServer) -> MySQLDatabase:
    return mariadb.database()


def options(database: MySQLDatabase, table: str, more: str = "") -> str:
    return f"'connector' = 'mysql', 'url' = '{database.url}', 'table' = '{table}'{more}"


def created(database: MySQLDatabase, table: str) -> str:
    return options(database, table, ", 'sink.create-table' = 'true'")


VALUES: dict[str, tuple[str, Any]] = database_sinks.VALUES | {
    "id": ("BIGINT", -(2**63)),
    "exact": ("DECIMAL(38, 4)", Decimal("1234567890123456789012345678901234.5678")),
    "name": ("STRING", 'it\'s "q", \\. 中😀 %s %(a)s\n\x00\\'),
    "bytes": ("BYTES", b"\x00\xff',\n"),
    "no bytes": ("BYTES", b""),
    "moment": ("TIMESTAMP_LTZ(3)", datetime.datetime(2026, 3, 29, 1, 30, tzinfo=datetime.UTC)),
    "clock": ("TIME", datetime.time(23, 59, 59, 5)),
}
ON_SERVER: dict[str, Callable[[Any], Any]] = {
    "moment": lambda v: v.replace(tzinfo=None),
    "clock": lambda v: datetime.timedelta(hours=v.hour, minutes=v.minute, seconds=v.second, microseconds=v.microsecond),
    "code": str,
    **dict.fromkeys(("list", "row", "map"), lambda v: json.dumps(v, separators=(",", ":"))),
}


def test_types_and_values(database: MySQLDatabase) -> None:
    row, nothing = [value for _, value in VALUES.values()], [None] * (len(VALUES) - 1)
    with Stream(looking_up(VALUES, created(database, "kinds"))) as stream:
        stream.batch("given", [row, [2, *nothing]])
        first, second = database.run("SET time_zone = '+00:00'", "SELECT * FROM kinds ORDER BY id")
        assert list(first) == [ON_SERVER.get(name, lambda v: v)(value) for name, (_, value) in VALUES.items()]
        assert second == (2, *nothing)
        # A lookup reads what the sink wrote.
        stream.batch("keys", [(row[0],), (2,)])
        looked_up = sorted(stream.rows("found"))
        assert [
            v.astimezone(datetime.UTC) if name == "moment" else v for name, v in zip(VALUES, looked_up[0], strict=True)
        ] == row
        assert looked_up[1] == second
    found = dict(
        database.run("SELECT column_name, column_type FROM information_schema.columns WHERE table_name = 'kinds'")
    )
    assert (found["price"], found["at"], found["moment"], found["name"], found["bytes"]) == (
        "decimal(12,4)", "datetime(6)", "timestamp(6)", "longtext", "longblob",
    )  # fmt: skip


REFUSED = {
    "no table": ("nothing", "a INT", "", 'MariaDB has no table "nothing"'),
    "no column": ("target", "id INT, nmae STRING", "", 'has no column "nmae"'),
    "type": ("target", "id INT, name INT", "", 'column "name" is varchar in MariaDB, and declared INTEGER'),
    "narrow type": ("target", "id BIGINT, name STRING", "", 'column "id" is int in MariaDB, and declared BIGINT'),
    "decimals": ("target", "id INT, price DECIMAL(10, 3)", "", "is decimal(10,2) in MariaDB, and declared DECIMAL(10,3)"),
    "unsigned": ("target", "positive INT", "", 'column "positive" is int unsigned in MariaDB, and declared INTEGER'),
    "not null": ("strict", "a INT", "", 'demands a value for column "b" (NOT NULL, without a default)'),
    "generated": ("strict", "a INT, b INT, twice INT", "", 'computes column "twice" itself'),
    "index": ("target", "id INT, name STRING, PRIMARY KEY (name) NOT ENFORCED", "", "has no unique index over"),
    "part": ("target", "id INT, short STRING, PRIMARY KEY (short) NOT ENFORCED", "", "has no unique index over"),
    "collation": ("cases", "k STRING, PRIMARY KEY (k) NOT ENFORCED", "", "for which different texts may be the same key"),
    "engine": ("plain", "a INT", "", 'table "plain" of MariaDB is one of MyISAM, which has no transactions'),
    "view": ("seen", "a INT", "", 'table "seen" of MariaDB is one of VIEW, which has no transactions'),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_declared_wrongly_is_said_at_the_start(case: str, database: MySQLDatabase) -> None:
    database.run(
        "CREATE TABLE IF NOT EXISTS target (id int PRIMARY KEY, name varchar(9), price decimal(10, 2),"
        " positive int unsigned, short varchar(90), UNIQUE (short(5)))",
        "CREATE TABLE IF NOT EXISTS strict (a int, b int NOT NULL, c int NOT NULL DEFAULT 1, d int NOT NULL AUTO_INCREMENT"
        " PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED)",
        "CREATE TABLE IF NOT EXISTS cases (k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY) CHARACTER SET utf8mb4",
        "CREATE TABLE IF NOT EXISTS plain (a int) ENGINE = MyISAM",
        "CREATE OR REPLACE VIEW seen AS SELECT a FROM strict",
    )
    table, columns, more, message = REFUSED[case]
    check_refused(columns, options(database, table, more), message)


TOO_MUCH = {
    "CHECK": ("n BIGINT", "n bigint CHECK (n < 10)", (10,), "CONSTRAINT"),
    "NULL": ("n BIGINT", "n bigint NOT NULL DEFAULT 1", (None,), "Column 'n' cannot be null"),
    "text": ("t STRING", "t varchar(3)", ("long",), "Data too long for column 't'"),
    "characters": ("t STRING", "t text CHARACTER SET latin1", ("中",), "Incorrect string value"),
    "moment of old": (
        "d TIMESTAMP_LTZ",
        "d timestamp(6)",
        (datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),),
        "for column .*`d`",
    ),
    "moment": ("m TIMESTAMP", "m timestamp(6)", (datetime.datetime(2060, 1, 1),), "for column .*`m`"),
    "fraction": (
        "m TIMESTAMP",
        "m datetime(3)",
        (datetime.datetime(2026, 1, 1, 1, 1, 1, 1),),
        'column "m" is datetime',
    ),
    "seconds": (
        "c TIME",
        "c time",
        (datetime.time(1, 1, 1, 1),),
        'column "c" is time there, which cannot hold 01:01:01',
    ),
    "not a number": ("x DOUBLE", "x double", (float("nan"),), "for column .*`x`"),
    "bytes": ("b BYTES", "b varbinary(2)", (b"123",), "Data too long for column 'b'"),
    "packet": ("t STRING", "t longtext", ("x" * (1 << 20),), "max_allowed_packet of the server is 1,048,576"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_values_that_a_column_cannot_hold(case: str, database: MySQLDatabase) -> None:
    columns, there, row, said = TOO_MUCH[case]
    database.run("DROP TABLE IF EXISTS checked", f"CREATE TABLE checked ({there})")
    script = copying(columns, options(database, "checked"))
    with Stream(script) as stream, pytest.raises(DataError, match=said) as refused:
        stream.batch("given", [row])
    assert 'rows of table "kept"' in refused.value.message
    assert database.run("SELECT count(*) FROM checked") == [(0,)]


def test_times_that_a_column_holds_though_it_rounds_others(database: MySQLDatabase) -> None:
    database.run("CREATE TABLE rounding (at datetime, moment timestamp(3) NULL, clock time(1))")
    columns = "at TIMESTAMP(3), moment TIMESTAMP_LTZ(3), clock TIME"
    script = copying(columns, options(database, "rounding"))
    at = datetime.datetime(2026, 1, 1, 10)
    moment = at.replace(microsecond=123000)
    with Stream(script) as stream:
        stream.batch(
            "given", [(at, moment.replace(tzinfo=datetime.UTC), datetime.time(1, 2, 3, 400000)), (None, None, None)]
        )
    rows = database.run("SET time_zone = '+00:00'", "SELECT * FROM rounding")
    clock = datetime.timedelta(hours=1, minutes=2, seconds=3, microseconds=400000)
    assert rows == [(at, moment, clock), (None, None, None)]


def test_keys_are_the_same_only_if_all_their_characters_are(database: MySQLDatabase) -> None:
    keys = ["a", "A", "ä", "a ", "", "0"]
    with Stream(copying("k STRING, n INT", created(database, "texts"), key="k")) as stream:
        stream.batch("given", [(key, 1) for key in keys])
        stream.batch("given", [("a ", 2)])
    assert sorted(database.run("SELECT * FROM texts")) == sorted((key, 1 + (key == "a ")) for key in keys)


def test_a_row_that_is_the_same_as_another_one_elsewhere(database: MySQLDatabase) -> None:
    database.run("CREATE TABLE users (id bigint PRIMARY KEY, name varchar(20) UNIQUE, seen int DEFAULT 7)")
    with Stream(copying("id BIGINT, name STRING", options(database, "users"), key="id")) as stream:
        stream.batch("given", [(1, "ann"), (2, "bob")])
        stream.batch("given", [(2, "eve"), (0, "bob")])
        assert database.run("SELECT * FROM users ORDER BY id") == [(0, "bob", 7), (1, "ann", 7), (2, "eve", 7)]
        with pytest.raises(DataError, match="Duplicate entry 'ann' for key"):
            stream.batch("given", [(3, "ann")])
    assert database.run("SELECT count(*) FROM users") == [(3,)]


def test_many_rows(database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several chunks and statements."""
    monkeypatch.setattr(sink, "_CHUNK", 2048)
    rows = [(n, "x" * (n % 1000)) for n in range(3000)]
    with Stream(copying("k BIGINT, t STRING", created(database, "many"), key="k")) as stream:
        stream.batch("given", rows)
    assert database.run("SELECT * FROM many ORDER BY k") == rows


def test_a_server_that_cannot_be_reached(mariadb: MariaDBServer, database: MySQLDatabase) -> None:
    nowhere = created(database, "t").replace(f":{mariadb.port}/", ":1/") + ", 'sink.max-retries' = '1'"
    with pytest.raises(OutageError) as failed:
        Stream(COUNTS.format(options=nowhere))
    assert failed.value.message.startswith('writing table "counts" failed 2 times: Can\'t connect to MySQL server')
    wrong = created(database, "t").replace("cret@", "crets@")
    with pytest.raises(JobError, match=r'writing table "counts" failed: Access denied for user') as denied:
        Stream(COUNTS.format(options=wrong))
    assert not isinstance(denied.value, OutageError)
    assert "crets" not in denied.value.render()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://ann@localhost/shop", "is not one of a MySQL server"),
        ("mysql://ann@localhost:many/shop", "is not one: Port could not be cast"),
        ("mysql://ann@localhost/shop?ssl_cap=a.pem", 'has the unknown parameter "ssl_cap"'),
    ],
)
def test_urls_that_are_none(url: str, said: str) -> None:
    with pytest.raises(BindError) as refused:
        Stream(COUNTS.format(options=f"'connector' = 'mysql', 'url' = '{url}', 'table' = 't'"))
    assert said in refused.value.message
    assert refused.value.hint


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(UsageError, match='the connector "mysql" needs PyMySQL, which cannot be imported') as refused:
        Stream(COUNTS.format(options="'connector' = 'mysql', 'url' = 'mysql://localhost/shop', 'table' = 't'"))
    assert refused.value.hint == "Install it: pip install -e '.[mysql]'."


@pytest.mark.thorough
def test_a_server_that_proves_who_it_is(tmp_path: Path) -> None:
    for name, host in (("own", "127.0.0.1"), ("other", "127.0.0.2")):
        write_certificate(tmp_path / name, host)
    with TemporaryDirectory(prefix="mariadb-") as folder:
        server = MariaDBServer(Path(folder), ssl=tmp_path / "own")
        try:
            server.start()
            database = server.database()

            def job(authority: str) -> str:
                given = created(database, "counts").replace(
                    f"/{database.name}'", f"/{database.name}?ssl_ca={tmp_path}/{authority}'"
                )
                return COUNTS.format(options=given + ", 'sink.max-retries' = '0'")

            with Stream(job("own.crt")) as stream:
                stream.batch("sold", [(1, 10)])
            assert database.run("SELECT n FROM counts") == [(1,)]
            with pytest.raises(JobError, match="certificate verify failed"):
                Stream(job("other.crt"))
        finally:
            server.stop()


def write_certificate(path: Path, host: str) -> None:
    """Write a certificate for a host, which nobody but its own key has signed, and the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(1)
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    path.with_suffix(".crt").write_bytes(signed.public_bytes(Encoding.PEM))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.with_suffix(".key").write_bytes(plain)
