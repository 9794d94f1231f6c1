"""Indexes of a real server that jobs write: types, ids, changes, batches that come again, outages, and what is refused."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sqlstream.connectors.elasticsearch import client, sink
from sqlstream.connectors.elasticsearch.sink import DocumentWriter
from sqlstream.errors import BindError, DataError, JobError, OutageError, SqlStreamError, UnsupportedError
from sqlstream.testing import Stream
from tests.certificates import Authority
from tests.connectors import database_sinks
from tests.connectors.database_sinks import COUNTS, Crash, copying, crashing
from tests.connectors.test_database_kills import FILES, ROWS, counts, given, start
from tests.elasticsearch_server import Guarded, SearchServer, started
from tests.processes import SECONDS

pytestmark = pytest.mark.slow


def options(server: SearchServer, index: str, more: str = "", *, connector: str = "elasticsearch-7") -> str:
    return f"'connector' = '{connector}', 'hosts' = '{server.url}', 'index' = '{index}'{more}"


def test_rows_by_their_keys_and_rows_that_are_added(
    elasticsearch: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run through all: it is what `make test` has."""
    script = f"""
    {COUNTS.format(options=options(elasticsearch, "counts"))};
    CREATE TABLE lines (item BIGINT, price BIGINT) WITH ({options(elasticsearch, "lines")});
    INSERT INTO lines SELECT item, price FROM sold;
    """
    with Stream(script) as stream:
        stream.batch("sold", [(1, 10), (1, 20), (2, 30)])
        assert elasticsearch.documents("counts") == {
            "1": {"item": 1, "n": 2, "total": 30},
            "2": {"item": 2, "n": 1, "total": 30},
        }
        stream.restart()
        # The group leaves the result, and its document the index; the same row again is another document.
        with monkeypatch.context() as patch:
            patch.setattr(DocumentWriter, "write", crashing(DocumentWriter.write))
            with pytest.raises(Crash):
                stream.batch("sold", [(1, 80), (2, 5), (1, 80)])
        stream.restart()
        stream.batch("sold", [(1, 80), (2, 5), (1, 80)])
        assert elasticsearch.documents("counts") == {"2": {"item": 2, "n": 2, "total": 35}}
        added = elasticsearch.documents("lines")
    assert sorted((d["item"], d["price"]) for d in added.values()) == [
        (1, 10),
        (1, 20),
        (1, 80),
        (1, 80),
        (2, 5),
        (2, 30),
    ]
    assert {id.rpartition("-")[2] for id in added} == {"1", "2", "3"}
    assert all(id.startswith("lines-") for id in added)


WRITTEN: dict[str, Any] = {
    "price": -1.25,
    "bytes": None,
    "day": "1969-12-31",
    "at": "2026-01-01 10:00:00.123456",
    "moment": "2026-01-01 10:00:00+00",
    "clock": "23:59:59",
    "code": "00000000-0000-0000-0000-000000000007",
}


@pytest.mark.thorough
def test_types_and_values(elasticsearch: SearchServer) -> None:
    values = {name: given for name, given in database_sinks.VALUES.items() if name != "bytes"}
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in values.items())
    row = [value for _, value in values.values()]
    with Stream(copying(columns, options(elasticsearch, "kinds"), key="id")) as stream:
        stream.batch("given", [row, [2] + [None] * (len(values) - 1)])
    there = elasticsearch.documents("kinds")
    assert there["1"] == {name: WRITTEN.get(name, value) for name, (_, value) in values.items()}
    assert there["2"] == {"id": 2} | dict.fromkeys(list(values)[1:])


@pytest.mark.thorough
def test_times_as_iso_8601_says(elasticsearch: SearchServer) -> None:
    elasticsearch.ask("PUT", "/dated", {"mappings": {"properties": {"at": {"type": "date"}}}})
    rows = [(datetime.datetime(2026, 1, 1, 10, 0, 0, 500000),)]
    plain = copying("at TIMESTAMP(3)", options(elasticsearch, "dated"))
    with (
        Stream(plain) as stream,
        pytest.raises(DataError, match=r"refuses a row of table .kept.*\[at\] of type \[date\]") as refused,
    ):
        stream.batch("given", rows)
    assert refused.value.detail is not None
    assert '{"at":"2026-01-01 10:00:00.5"}' in refused.value.detail
    assert "'json.timestamp-format.standard' = 'ISO-8601'" in str(refused.value.hint)
    iso = options(elasticsearch, "dated", ", 'json.timestamp-format.standard' = 'ISO-8601'")
    with Stream(copying("at TIMESTAMP(3)", iso)) as stream:
        stream.batch("given", rows)
    assert list(elasticsearch.documents("dated").values()) == [{"at": "2026-01-01T10:00:00.5"}]


AT = datetime.datetime(2026, 3, 4, 5, 6)
# (columns, key, row, options, index, id)
PLACES: dict[str, tuple[str, str, tuple[Any, ...], str, str, str]] = {
    "column": ("id BIGINT, kind STRING", "id", (1, "a"), "p1-{kind}", "p1-a", "1"),
    "day": ("id BIGINT, at TIMESTAMP(3)", "id", (1, AT), "p2-{at|yyyy-MM-dd}", "p2-2026-03-04", "1"),
    "no pattern": ("id BIGINT, at TIMESTAMP(3)", "id", (1, AT), "p3-{at|}", "p3-2026_03_04_05_06_00", "1"),
    "moment": (
        "id BIGINT, at TIMESTAMP_LTZ(3)", "id", (1, AT.replace(tzinfo=datetime.UTC)), "p4-{at|yyyy.MM}", "p4-2026.03", "1",
    ),
    "two": ("id BIGINT, at DATE", "id", (1, AT.date()), "p5-{id}-{at|yyyy}", "p5-1-2026", "1"),
    "keys": ("a STRING, b DECIMAL(5, 2), c BOOLEAN", "c, a, b", ("x", Decimal("1.50"), True), "p6", "p6", "true_x_1.50"),
    "minutes": ("at TIMESTAMP(3)", "at", (AT,), "p7", "p7", "2026-03-04T05:06"),
    "seconds": ("at TIMESTAMP(3)", "at", (AT.replace(second=7),), "p8", "p8", "2026-03-04T05:06:07"),
    "fraction": ("at TIMESTAMP(6)", "at", (AT.replace(microsecond=500),), "p9", "p9", "2026-03-04T05:06:00.000500"),
    "millis": ("at TIMESTAMP(3)", "at", (AT.replace(microsecond=5000),), "p10", "p10", "2026-03-04T05:06:00.005"),
    "instant": (
        "at TIMESTAMP_LTZ(3)", "at", (AT.replace(tzinfo=datetime.UTC),), "p11", "p11", "2026-03-04T05:06:00Z",
    ),
    "clock": ("at TIME", "at", (datetime.time(5, 6),), "p12", "p12", "05:06"),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("case", PLACES)
def test_the_index_and_the_id_of_a_document(case: str, elasticsearch: SearchServer) -> None:
    columns, key, row, place, index, id = PLACES[case]
    with Stream(copying(columns, options(elasticsearch, place), key=key)) as stream:
        stream.batch("given", [row])
    assert [*elasticsearch.documents(index)] == [id]


@pytest.mark.thorough
def test_a_row_that_goes_into_another_index_leaves_the_first(elasticsearch: SearchServer) -> None:
    script = f"""
    CREATE TABLE sold (item STRING, price BIGINT);
    CREATE TABLE sums (item STRING, size STRING, total BIGINT, PRIMARY KEY (item) NOT ENFORCED)
    WITH ({options(elasticsearch, "sums-{size}", ", 'document-id.key-delimiter' = '$'")});
    INSERT INTO sums SELECT item, CASE WHEN SUM(price) < 100 THEN 'small' ELSE 'big' END, SUM(price) FROM sold GROUP BY item
    """
    with Stream(script) as stream:
        stream.batch("sold", [("pen", 10), ("ink", 20)])
        assert {*elasticsearch.documents("sums-small")} == {"pen", "ink"}
        stream.batch("sold", [("pen", 90)])
        assert {*elasticsearch.documents("sums-small")} == {"ink"}
        assert elasticsearch.documents("sums-big") == {"pen": {"item": "pen", "size": "big", "total": 100}}


@pytest.mark.thorough
def test_large_batches_go_in_several_requests(elasticsearch: SearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_ROWS", 100)
    monkeypatch.setattr(sink, "_BYTES", 2000)
    with Stream(copying("n BIGINT, t STRING", options(elasticsearch, "many"))) as stream:
        stream.batch("given", [(n, "x" * (n % 50)) for n in range(1000)])
        stream.batch("given", [(1000, "y" * 10_000)])
    assert sorted(d["n"] for d in elasticsearch.documents("many").values()) == [*range(1001)]


@pytest.mark.thorough
def test_a_batch_that_comes_again_in_another_order_gives_the_same_documents(
    elasticsearch: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job crashes after some requests of the batch, whose rows go into several indexes."""
    monkeypatch.setattr(sink, "_ROWS", 3)
    rows = [(n, f"{n % 4}") for n in (*range(20), 7)]
    with Stream(copying("n BIGINT, kind STRING", options(elasticsearch, "again-{kind}"))) as stream:
        with monkeypatch.context() as patch:
            write, requests = client.BulkClient.write, count()

            def crashes(self: client.BulkClient, writes: list[client.Write]) -> None:
                write(self, writes)
                if next(requests) == 3:
                    raise Crash

            patch.setattr(client.BulkClient, "write", crashes)
            with pytest.raises(Crash):
                stream.batch("given", rows)
        assert len(elasticsearch.documents("again-*")) == 4 * 3
        stream.restart()
        stream.batch("given", rows[::-1])
    there = elasticsearch.documents("again-*").values()
    assert sorted((d["n"], d["kind"]) for d in there) == sorted(rows)


REFUSED: dict[str, tuple[str, str, type[SqlStreamError], str]] = {
    "capital letters": ("n BIGINT", "'index' = 'Users'", BindError, "the name of an index has no capital letters"),
    "no column": ("n BIGINT", "'index' = 'users-{m}'", BindError, 'has the column "m", which does not exist'),
    "no time": (
        "n BIGINT",
        "'index' = 'users-{n|yyyy}'",
        BindError,
        'a pattern of time for column "n", which is BIGINT',
    ),
    "pattern": ("n TIMESTAMP(3)", "'index' = 'users-{n|QQ}'", UnsupportedError, "in the pattern of its index"),
    "clock": ("n BIGINT", "'index' = 'users-{now()|yyyy}'", UnsupportedError, "the clock in the name of an index"),
    "key": ("n BYTES, PRIMARY KEY (n) NOT ENFORCED", "'index' = 'x'", UnsupportedError, "BLOB in a PRIMARY KEY"),
    "computed key": (
        "n BIGINT, m AS n + 1, PRIMARY KEY (m) NOT ENFORCED",
        "'index' = 'x'",
        UnsupportedError,
        "is computed",
    ),
    "no host": ("n BIGINT", "'index' = 'x', 'hosts' = '; '", BindError, '"" is not the address of a node'),
    "host": ("n BIGINT", "'index' = 'x', 'hosts' = 'localhost'", BindError, '"localhost" is not the address of a node'),
    "handler": ("n BIGINT", "'index' = 'x', 'failure-handler' = 'ignore'", UnsupportedError, '"failure-handler"'),
    "times": (
        "n ARRAY<TIMESTAMP(3)>",
        "'index' = 'x', 'json.timestamp-format.standard' = 'ISO-8601'",
        UnsupportedError,
        "times within other values",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_declared_wrongly_is_said_at_the_start(case: str) -> None:
    columns, more, kind, message = REFUSED[case]
    hosts = "" if "'hosts'" in more else "'hosts' = 'http://localhost:1', "
    script = f"""
    CREATE TABLE given ({columns.partition(", PRIMARY")[0]});
    CREATE TABLE kept ({columns}) WITH ('connector' = 'elasticsearch', {hosts}{more});
    INSERT INTO kept SELECT * FROM given
    """
    with pytest.raises(kind) as refused:
        Stream(script)
    assert message in refused.value.message
    assert refused.value.hint


@pytest.mark.thorough
def test_rows_that_have_no_place(elasticsearch: SearchServer) -> None:
    with Stream(copying("n BIGINT, kind STRING", options(elasticsearch, "kind-{kind}"))) as stream:
        with pytest.raises(DataError, match="has no index") as refused:
            stream.batch("given", [(7, None)])
        assert refused.value.detail == '{"n":7,"kind":null}'
        with pytest.raises(DataError, match=r"refuses a row of table .kept.: Invalid index name"):
            stream.batch("given", [(7, "A b")])


@pytest.mark.thorough
def test_changes_need_a_key(elasticsearch: SearchServer) -> None:
    script = COUNTS.format(options=options(elasticsearch, "x")).replace(", PRIMARY KEY (item) NOT ENFORCED", "")
    with pytest.raises(UnsupportedError, match="append-only") as refused:
        Stream(script)
    assert "a table with a PRIMARY KEY" in str(refused.value.hint)


@pytest.mark.thorough
def test_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with started() as server:
        more = ", 'sink.max-retries' = '2'"
        script = copying("n BIGINT", options(server, "away", more))
        with Stream(script) as stream:
            stream.batch("given", [(1,)])
            server.kill()
            with pytest.raises(OutageError, match=r'writing table "kept" failed 3 times: .*refused') as failed:
                stream.batch("given", [(2,)])
            assert "No row is lost" in str(failed.value.hint)
            server.start()
            stream.restart()
            stream.batch("given", [(2,)])
            # One that is away for a short while only.
            monkeypatch.setattr(time, "sleep", lambda _: None if server.is_running else server.start())
            server.kill()
            stream.batch("given", [(3,)])
        assert sorted(d["n"] for d in server.documents("away").values()) == [1, 2, 3]


@pytest.mark.thorough
def test_a_login_and_encryption(elasticsearch: SearchServer, tmp_path: Path) -> None:
    authority = Authority("search")
    certificate = authority.give("node", tmp_path / "node.pem")
    trusted, other = authority.write(tmp_path / "ca.pem"), Authority("other").write(tmp_path / "other.pem")
    login = ", 'username' = 'ann', 'password' = '{}'"
    right, wrong = login.format("s/e:cret"), login.format("wrong-secret")

    def copied(url: str, more: str) -> str:
        return copying("n BIGINT", f"'connector' = 'elasticsearch', 'hosts' = '{url}', 'index' = 'guarded'{more}")

    with Guarded(elasticsearch, "ann:s/e:cret") as guarded:
        with Stream(copied(guarded.url, right)) as stream:
            stream.batch("given", [(1,)])
        for more in ("", wrong):
            with pytest.raises(JobError, match="status 401") as refused:
                Stream(copied(guarded.url, more))
            assert "'username' and 'password'" in str(refused.value.hint)
            assert "wrong-secret" not in str(refused.value)
    with Guarded(elasticsearch, "ann:s/e:cret", certificate) as guarded:
        authorities = ", 'ssl.truststore.location' = '{}'"
        with Stream(copied(guarded.url, right + authorities.format(trusted))) as stream:
            stream.batch("given", [(2,)])
        for more in ("", authorities.format(other)):
            with pytest.raises(JobError, match="certificate") as refused:
                Stream(copied(guarded.url, right + more))
            assert "ssl.truststore.location" in str(refused.value.hint)
        with pytest.raises(JobError, match="No such file"):
            Stream(copied(guarded.url, right + authorities.format(tmp_path / "nothing.pem")))
    assert sorted(d["n"] for d in elasticsearch.documents("guarded").values()) == [1, 2]


@pytest.mark.thorough
def test_documents_that_are_not_taken_are_sent_again(
    elasticsearch: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a request, some documents are taken, and others refused because a queue is full."""
    requests: list[int] = []
    request: Callable[..., Any] = client.BulkClient._request

    def busy(self: Any, method: str, route: str, body: bytes | None, accepted: Any = ()) -> Any:
        if body is None:
            return request(self, method, route, body, accepted)
        lines = body.splitlines(keepends=True)
        requests.append(len(lines) // 2)
        answer = request(self, method, route, b"".join(lines[:2]))
        full = {"type": "es_rejected_execution_exception", "reason": "the queue is full"}
        return {"items": answer["items"] + [{"index": {"status": 429, "error": full}}] * (len(lines) // 2 - 1)}

    monkeypatch.setattr(client.BulkClient, "_request", busy)
    monkeypatch.setattr(client, "_FIRST_DELAY", 0.01)
    with Stream(copying("n BIGINT", options(elasticsearch, "busy", ", 'sink.max-retries' = '3'"))) as stream:
        stream.batch("given", [(1,), (2,), (3,)])
        assert requests == [3, 2, 1]
        with pytest.raises(OutageError, match="the queue is full"):
            stream.batch("given", [(n,) for n in range(9)])
    assert len(elasticsearch.documents("busy")) == 3 + 4


@pytest.mark.thorough
def test_opensearch() -> None:
    with started("opensearch") as server:
        with Stream(COUNTS.format(options=options(server, "counts", connector="opensearch"))) as stream:
            stream.batch("sold", [(1, 10), (2, 30)])
            stream.batch("sold", [(1, 90)])
        assert server.documents("counts") == {"2": {"item": 2, "n": 1, "total": 30}}


KILLED = """
CREATE TABLE given (k BIGINT, part BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.max-files-per-batch' = '2');
CREATE TABLE rows_there (k BIGINT, part BIGINT) WITH ({rows});
INSERT INTO rows_there SELECT k, part FROM given;
CREATE TABLE counts_there (part BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (part) NOT ENFORCED) WITH ({counts});
INSERT INTO counts_there SELECT part, COUNT(*), SUM(k) FROM given GROUP BY part HAVING SUM(k) % 3 > 0;
"""


@pytest.mark.thorough
def test_kills_of_jobs_and_crashes_of_the_server_change_nothing(tmp_path: Path) -> None:
    with started() as server:
        given(tmp_path)
        places = {"rows": options(server, "rows-{part}"), "counts": options(server, "counts")}
        (tmp_path / "jobs.sql").write_text(KILLED.format(**places))
        for number in range(4):
            run = start(tmp_path, "3")
            assert run.stdout is not None
            for _ in range(number):
                line = run.stdout.readline()
                assert line == "batch\n", line + run.stdout.read()
            if number == 2:
                server.crash()
            run.kill()
            run.communicate()
            keys = [d["k"] for d in server.documents("rows-*").values()] if number > 1 else []
            assert len(keys) == len(set(keys)), "a row is there twice"
        run = start(tmp_path)
        output, _ = run.communicate(timeout=SECONDS)
        assert run.returncode == 0, output
        rows = server.documents("rows-*").values()
        assert sorted((d["k"], d["part"]) for d in rows) == [(k, k % 11) for k in range(FILES * ROWS)]
        found = [(d["part"], d["n"], d["total"]) for d in server.documents("counts").values()]
        assert sorted(found) == counts()
