"""The hash of keys: what it gives is part of the format of state, and must never change."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.catalog import Column
from sqlstream.duck import databases, key_hash
from sqlstream.functions.databases import close_idle
from sqlstream.runtime import worker
from sqlstream.testing import Stream
from tests.properties.examples import examples

# A change of any of these loses the state of every job there is.
VECTORS = [
    ("true", "BOOLEAN", 4717996019076358352),
    ("-1", "TINYINT", 4939931809569846361),
    ("-1", "SMALLINT", 4939931809569846361),
    ("-1", "INTEGER", 4939931809569846361),
    ("-1", "BIGINT", 4939931809569846361),
    ("42", "BIGINT", 7199933130570745587),
    ("42", "UTINYINT", 7199933130570745587),
    ("42", "USMALLINT", 7199933130570745587),
    ("42", "UINTEGER", 7199933130570745587),
    ("18446744073709551615", "UBIGINT", 4939931809569846361),
    ("-1", "HUGEINT", 12891033138958662056),
    ("170141183460469231731687303715884105727", "HUGEINT", 14986287496251409017),
    ("1", "UHUGEINT", 15512189757048957329),
    ("'2013-01-01'", "DATE", 12925796022233442596),
    ("'1960-02-29'", "DATE", 11426756690909246311),
    ("'infinity'", "DATE", 8664720811953274015),
    ("'00:00:01'", "TIME", 2781178149335693548),
    ("'2013-01-01 12:30:00.000001'", "TIMESTAMP", 7625288297372256647),
    ("'1969-12-31 23:59:59'", "TIMESTAMP", 6272328152187088534),
    ("'infinity'", "TIMESTAMP", 13173756286995563913),
    ("'1970-01-01 00:00:01'", "TIMESTAMP_S", 2781178149335693548),
    ("'1970-01-01 00:00:01'", "TIMESTAMP_MS", 2781178149335693548),
    ("'1970-01-01 00:00:00.001'", "TIMESTAMP_NS", 2781178149335693548),
    ("'2013-01-01 00:00:00+00'", "TIMESTAMP WITH TIME ZONE", 12851390800532716826),
    ("'12:00:00+02'", "TIME WITH TIME ZONE", 18019545320365582089),
    ("-1.5", "DECIMAL(4, 1)", 3339589515939396320),
    ("1.50", "DECIMAL(18, 2)", 11259946367786091803),
    ("0", "DECIMAL(9, 0)", 0),
    ("-0.05", "DECIMAL(5, 2)", 6774767090898797280),
    ("12345678901234567890.5", "DECIMAL(38, 10)", 1357074449537900436),
    ("1.5", "FLOAT", 1706605666616485939),
    ("1.5", "DOUBLE", 1706605666616485939),
    ("-0.0", "DOUBLE", 0),
    ("0.0", "DOUBLE", 0),
    ("'nan'", "DOUBLE", 9170934016072976158),
    ("'-nan'", "DOUBLE", 9170934016072976158),
    ("'-infinity'", "DOUBLE", 4309491941538005919),
    ("0.1", "FLOAT", 11823251638100774115),
    ("''", "VARCHAR", 5104928228550385088),
    ("'a'", "VARCHAR", 12561829011207016135),
    ("'abcdefgh'", "VARCHAR", 10586210142991718607),
    ("'abcdefghi'", "VARCHAR", 1262670456059653342),
    ("'ä €, and a text that is longer than twelve bytes'", "VARCHAR", 16178921815451465083),
    ("'\\xAA\\x00b'", "BLOB", 14459880648610094269),
    ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'", "UUID", 7343999413468546485),
    ("'10110'", "BIT", 12520579328592148140),
    ("'{\"a\": 1}'", "JSON", 16257902260116361071),
    ("'b'", "ENUM('a', 'b')", 10660095401860160745),
    ("INTERVAL '1 month 2 days 3 seconds'", "INTERVAL", 57358649477831378),
    ("[1, NULL, 3]", "BIGINT[]", 8012346792635896121),
    ("[]", "BIGINT[]", 5104928228550385088),
    ("[1, NULL, 3]", "INTEGER[]", 8012346792635896121),
    ("[1, 2]", "INTEGER[2]", 8056210323931449947),
    ("['a', 'b']", "VARCHAR[]", 4962250289494814610),
    ("[[1], NULL]", "BIGINT[][]", 6916681458549200289),
    ("{'a': 1, 'b': 'x'}", "STRUCT(a INTEGER, b VARCHAR)", 4779835459265311454),
    ("{'a': NULL, 'b': [1]}", 'STRUCT(a INTEGER, "b c" INTEGER[])', 3784084143828440187),
    ("MAP {'k': 1, 'l': NULL}", "MAP(VARCHAR, INTEGER)", 11302339449376733342),
    ("NULL", "BIGINT", 13787848793156543929),
    ("NULL", "VARCHAR", 13787848793156543929),
    ("NULL", "DOUBLE", 13787848793156543929),
    ("NULL", "INTEGER[]", 13787848793156543929),
    ("NULL", "STRUCT(a INTEGER)", 13787848793156543929),
    ("NULL", "DATE", 13787848793156543929),
    ("NULL", "DECIMAL(5, 2)", 13787848793156543929),
]


@pytest.fixture(params=["DuckDB's hash", "another hash"])
def con(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection of a DuckDB that has our hash, and of one that has another."""
    if request.param != "another hash":
        with databases.passing() as con:
            yield con
        return
    monkeypatch.setattr(key_hash, "duckdb_agrees", lambda: False)
    with duckdb.connect() as con:
        key_hash.register(con)
        yield con


@pytest.mark.parametrize(("value", "type", "wanted"), VECTORS)
def test_vectors(con: duckdb.DuckDBPyConnection, value: str, type: str, wanted: int) -> None:
    hashed = key_hash.key_hash([("v", type)])
    assert con.execute(f"SELECT {hashed} FROM (SELECT CAST({value} AS {type}) AS v)").fetchone() == (wanted,)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([], 0),
        ([("1", "INTEGER"), ("'x'", "VARCHAR"), ("NULL::DOUBLE", "DOUBLE")], 8459370457285835152),
        ([("1", "BIGINT"), ("2", "BIGINT")], 6530802887144669425),
    ],
)
def test_several_columns_and_none(con: duckdb.DuckDBPyConnection, keys: list[tuple[str, str]], wanted: int) -> None:
    assert con.execute(f"SELECT {key_hash.key_hash(keys)}").fetchone() == (wanted,)


def test_every_probe_is_the_hash_of_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells whether DuckDB's hash may be used is true of what is used where it may not."""
    assert key_hash.duckdb_agrees()
    monkeypatch.setattr(key_hash, "duckdb_agrees", lambda: False)
    with duckdb.connect() as con:
        key_hash.register(con)
        for values, wanted in key_hash._PROBES.items():
            types = con.execute(f"DESCRIBE SELECT {values}").fetchall()
            keys = [(value, row[1]) for value, row in zip(_split(values), types, strict=True)]
            assert con.execute(f"SELECT {key_hash.key_hash(keys)}").fetchone() == (wanted,), values


def _split(values: str) -> list[str]:
    return values.split(", ") if values.startswith("1::") else [values]


@examples(100)
@given(st.lists(st.none() | st.text(max_size=40), min_size=1, max_size=30))
@pytest.mark.slow
def test_texts_of_all_lengths(texts: list[str | None]) -> None:
    shown = [text and text.replace("\x00", "") for text in texts]
    array = pa.array(shown, pa.string())
    with duckdb.connect() as con:
        con.register("given", pa.table({"t": array}))
        wanted = [row[0] for row in con.execute("SELECT hash(t) FROM given").fetchall()]
    assert key_hash._hashes(array).to_pylist() == wanted
    assert key_hash._hashes(array.slice(len(shown) // 2)).to_pylist() == wanted[len(shown) // 2 :]


@pytest.mark.slow
@given(st.text(max_size=40) | st.none(), st.integers(-(2**63), 2**63 - 1) | st.none(), st.integers(1, 300))
@examples(50)
def test_the_bucket_of_a_key_that_is_known(text: str | None, number: int | None, buckets: int) -> None:
    sql = key_hash.bucket([Column("a", "VARCHAR"), Column("b", "BIGINT")], buckets)
    with databases.passing() as con:
        row = con.execute(f"SELECT {sql} FROM (SELECT ?::VARCHAR AS a, ?::BIGINT AS b)", [text, number]).fetchone()
    assert row == (key_hash.bucket_of([text, number], buckets),)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["k BIGINT", "k STRING", "k DECIMAL(10, 2)", "k ARRAY<INT>"])
def test_a_job_goes_on_under_a_duckdb_with_another_hash(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """State that was spread by DuckDB's hash is found again by ours."""
    values = {"k BIGINT": range(-4, 5), "k STRING": "abcdefghi", "k DECIMAL(10, 2)": ["-1.5", "2.25", "0"]}
    rows = [(value,) for value in values.get(key, [[1], [2, None], []])]
    script = f"""
    CREATE TABLE t ({key});
    CREATE TABLE r ({key}, n BIGINT);
    INSERT INTO r SELECT k, count(*) AS n FROM t GROUP BY k;
    """
    with Stream(script, parallelism=4) as stream:
        stream.batch("t", rows)
        monkeypatch.setattr(key_hash, "duckdb_agrees", lambda: False)
        stream.restart()
        for job in stream.runs.values():
            worker.release(job.job)
        close_idle()
        stream.batch("t", rows)
        assert [row[1] for row in stream.state("aggregate_1")] == [2] * len(rows)
