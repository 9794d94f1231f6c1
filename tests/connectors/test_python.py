"""Sources and sinks that are classes of the user's."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.interface import DriverSink, SinkContext
from sqlstream.connectors.python.instances import kind
from sqlstream.connectors.python.source import PartitionDiscovery, PartitionRange
from sqlstream.connectors.registry import sink_of, source_of
from sqlstream.errors import DataError, JobError, SqlStreamError
from sqlstream.functions import load
from sqlstream.session.session import Session
from sqlstream.testing import Stream
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from tests.connectors import own_connectors
from tests.kinds import job_of
from tests.processes import SECONDS

SOURCE = (
    "CREATE TABLE numbers (k BIGINT, part STRING)"
    " WITH ('connector' = 'python', 'class' = 'tests.connectors.own_connectors.{}', {});"
)
SINK = (
    "CREATE TABLE lines (n BIGINT, d DATE, s STRING)"
    " WITH ('connector' = 'python', 'class' = 'tests.connectors.own_connectors.Lines', 'file' = '{}');"
)


def source(tmp_path: Path, name: str = "Numbers", **options: str) -> str:
    (tmp_path / "n").write_text("10")
    given = {"file": str(tmp_path / "n"), **options}
    return SOURCE.format(name, ", ".join(f"'{k}' = '{v}'" for k, v in given.items()))


def test_a_source_is_read_to_where_it_ends(tmp_path: Path) -> None:
    script = source(tmp_path, **{"split-into": "3"})
    with Stream(f"{script} CREATE TABLE out (k BIGINT, part STRING); INSERT INTO out SELECT k, part FROM numbers") as s:
        s.finish()
        assert sorted(s.rows("out")) == [(k, str(k % 3)) for k in range(10)]


def test_threads_of_a_process_read_with_objects_of_their_own(tmp_path: Path) -> None:
    script = source(tmp_path, "Alone", **{"split-into": "4"})
    with Session(str(tmp_path), conf={"execution.engine": "local", "parallelism.default": "4"}) as session:
        job = session.sql(f"{script} CREATE TABLE out (k BIGINT); INSERT INTO out SELECT k FROM numbers")
        assert job_of(job).wait(SECONDS)
        assert session.query("FROM out ORDER BY k").fetchall() == [(k,) for k in range(10)]


def test_a_source_that_is_followed_goes_on_where_it_was(tmp_path: Path) -> None:
    script = source(tmp_path, **{"source.monitor-interval": "0 s"})
    with Stream(f"{script} CREATE TABLE out (k BIGINT); INSERT INTO out SELECT k FROM numbers") as stream:
        run = stream.runs["out"]
        run.pull()
        (tmp_path / "n").write_text("12")
        stream.restart()
        run = stream.runs["out"]
        run.pull()
        run.pull()
        assert sorted(stream.rows("out")) == [(k,) for k in range(12)]


def test_a_source_is_bounded_at_its_first_start(tmp_path: Path) -> None:
    with Stream(f"{source(tmp_path)} SELECT k FROM numbers") as stream:
        table = stream.compiler.catalog.relation("numbers")
        assert isinstance(table, Table)
    kept: dict[str, object] = {}
    context = DiscoveryContext(
        str(tmp_path), Warehouse(str(tmp_path)), "", 1, True, lambda n, v: json.loads(json.dumps(kept.setdefault(n, v)))
    )
    assert PartitionDiscovery(table, Offsets(), context).poll() == 1
    (tmp_path / "n").write_text("99")
    again = PartitionDiscovery(table, Offsets(), context)
    again.poll()
    splits = again.next_batch()
    assert splits == [PartitionRange("", [0], [10])] or splits == [PartitionRange("0", [0], [10])]
    assert splits is not None
    assert source_of(table).split(json.loads(json.dumps(splits[0].to_list()))) == splits[0]
    assert again.remaining == 0


def test_a_sink_gets_batches_by_number(tmp_path: Path) -> None:
    sink = SINK.format(tmp_path / "out")
    with Stream(
        f"CREATE TABLE given (n INT); {sink} INSERT INTO lines SELECT n, DATE '2026-01-01', n::STRING || 'x' FROM given"
    ) as stream:
        stream.batch("given", [(1,), (2,)])
        stream.restart()
        stream.batch("given", [(3,)])
        table = stream.compiler.catalog.relation("lines")
        assert isinstance(table, Table)
        # The last batch once more, as after a crash.
        pq.write_table(pa.table({"n": [3], "d": pa.nulls(1), "s": ["3x"]}), tmp_path / "again.parquet")
        target = sink_of(table)
        assert isinstance(target, DriverSink)
        writer = target.open(SinkContext(LocalFilesystem(), str(tmp_path), str(tmp_path / "records"), 0, "lines"))
        writer.write(Batch(1, table.columns, (str(tmp_path / "again.parquet"),)))
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [line["batch"] for line in lines] == [0, 1]
    rows = [(r["n"], r["d"], r["s"]) for line in lines for r in line["rows"]]
    assert sorted(rows) == [(n, "2026-01-01", f"{n}x") for n in (1, 2, 3)]


OWN = "WITH ('connector' = 'python', 'class' = 'tests.connectors.own_connectors.{}', 'file' = '{}'{})"


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_source_reads_a_few_rows_at_a_time_pauses_and_is_told_of_commits(tmp_path: Path) -> None:
    own = OWN.format("Feeds", tmp_path / "feeds", ", 'source.monitor-interval' = '0 s'")
    script = f"CREATE TABLE a (x STRING) {own}; CREATE TABLE b (y STRING, z STRING) {own};"
    script += "CREATE TABLE out (k STRING); INSERT INTO out SELECT x FROM a UNION ALL SELECT z FROM b"
    with Stream(script) as stream:
        run = stream.runs["out"]
        run.pull()
        assert sorted(stream.rows("out")) == [(f"{t}.{k}",) for t in ("a.x", "b.z") for k in range(3)]
        (tmp_path / "feeds.pause").touch()
        for _ in range(3):
            run.pull()
        assert len(stream.rows("out")) == 6
        stream.restart()
        run = stream.runs["out"]
        run.pull()
        assert len(stream.rows("out")) == 6
        (tmp_path / "feeds.pause").unlink()
        for rows in (12, 14):
            run.pull()
            assert len(stream.rows("out")) == rows
    assert lines(tmp_path / "feeds.a")[-1] == {"": {"row": {"n": 7}}}


def test_a_bounded_source_that_pauses_is_read_to_its_end(tmp_path: Path) -> None:
    script = f"CREATE TABLE a (x STRING) {OWN.format('Feeds', tmp_path / 'feeds', '')};"
    with Stream(f"{script} CREATE TABLE out (k STRING); INSERT INTO out SELECT x FROM a") as stream:
        stream.finish()
        assert len(stream.rows("out")) == 7


def test_sinks_of_changes_and_of_keys(tmp_path: Path) -> None:
    counted = "SELECT k, COUNT(*) FILTER (WHERE v > 0) AS n FROM given GROUP BY k"
    with Stream(
        f"""
        CREATE TABLE given (k STRING, v INT);
        CREATE TABLE changes (k STRING, n BIGINT) {OWN.format("Changes", tmp_path / "changes", "")};
        CREATE TABLE keyed (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) {OWN.format("Keyed", tmp_path / "keyed", "")};
        INSERT INTO changes {counted};
        INSERT INTO keyed SELECT * FROM ({counted}) WHERE n < 3;
        """
    ) as stream:
        stream.batch("given", [("a", 1), ("b", 1)])
        stream.batch("given", [("a", 1)])
        stream.batch("given", [("a", 1)])
    assert lines(tmp_path / "changes") == [
        [["a", 1, 1], ["b", 1, 1]],
        [["a", 1, -1], ["a", 2, 1]],
        [["a", 2, -1], ["a", 3, 1]],
    ]
    assert lines(tmp_path / "keyed") == [[[["a", 1], ["b", 1]], []], [[["a", 2]], []], [[], [{"k": "a"}]]]


def test_rows_that_wait_are_sent_once_it_works(tmp_path: Path) -> None:
    later = f"CREATE TABLE later (n INT, s STRING[]) {OWN.format('Later', tmp_path / 'later', '')};"
    with Stream(f"CREATE TABLE given (n INT); {later} INSERT INTO later SELECT n, ['x'] FROM given") as stream:
        with pytest.raises(JobError, match="raised ConnectionError: not now"):
            stream.batch("given", [(1,)])
        assert not (tmp_path / "later").exists()
        stream.restart()
        stream.batch("given", [(2,)])
    assert lines(tmp_path / "later") == [[0, [{"n": 1, "s": ["x"]}]], [1, [{"n": 2, "s": ["x"]}]]]


def test_what_is_written_is_rolled_back_when_it_fails(tmp_path: Path) -> None:
    half = f"CREATE TABLE half (n INT) {OWN.format('HalfWritten', tmp_path / 'half', '')};"
    with (
        Stream(f"CREATE TABLE given (n INT); {half} INSERT INTO half SELECT n FROM given") as stream,
        pytest.raises(JobError, match="raised ConnectionError: not now"),
    ):
        stream.batch("given", [(1,)])
    assert lines(tmp_path / "half") == [["rolled back", True]]


def test_errors_name_class_table_and_line(tmp_path: Path) -> None:
    with Stream(f"{source(tmp_path, 'Broken')} SELECT k FROM numbers") as stream:
        with pytest.raises(JobError, match="raised KeyError: 'gone'") as e:
            stream.finish()
        assert e.value.message.startswith('class "tests.connectors.own_connectors.Broken" of table "numbers" ')
        assert "own_connectors.py:" in (e.value.detail or "")
    with (
        Stream(f"{source(tmp_path, 'Nameless')} SELECT k FROM numbers") as stream,
        pytest.raises(DataError, match='returns no column "k"'),
    ):
        stream.finish()
    with (
        Stream(f"{source(tmp_path, colour='red')} SELECT k FROM numbers") as stream,
        pytest.raises(JobError, match=r"raised TypeError.*colour"),
    ):
        stream.finish()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("CREATE TABLE t (k INT) WITH ('connector' = 'python')", 'needs the option "class"'),
        (SOURCE.format("Numbrs", "'file' = 'x'"), 'module "tests.connectors.own_connectors" has no class "Numbrs"'),
        (SOURCE.format("Neither", "'file' = 'x'"), "is not a Source or a Sink"),
        (SINK.format("x").replace("Lines", "Keyed") + "INSERT INTO lines VALUES (1, NULL, '')", "needs a PRIMARY KEY"),
        (
            SOURCE.replace("tests.connectors.own_connectors", "nowhere").format("X", "'a' = 'x'"),
            'module "nowhere" does not exist',
        ),
        (
            SINK.format("x") + "SELECT * FROM lines",
            'table "lines" is a sink (python): it is written, and cannot be read',
        ),
        (
            SOURCE.format("Numbers", "'file' = 'x'") + "INSERT INTO numbers SELECT k, part FROM numbers",
            'table "numbers" is a source (python): it cannot be written',
        ),
    ],
)
def test_what_cannot_be_declared(script: str, message: str) -> None:
    with pytest.raises(SqlStreamError) as e:
        Stream(script)
    assert message in str(e.value)


def test_classes_of_a_project_travel_by_value(tmp_path: Path) -> None:
    (tmp_path / "udfs").mkdir()
    text = Path(own_connectors.__file__).read_text()
    (tmp_path / "udfs" / "my_own.py").write_text(text.replace("10", "11"))
    load(str(tmp_path / "udfs"))
    script = source(tmp_path).replace("tests.connectors.own_connectors", "my_own")
    with Stream(script) as stream:
        table = stream.compiler.catalog.relation("numbers")
    assert isinstance(table, Table)
    assert b"nothing" not in pickle.dumps(table)
    assert kind(table).__qualname__ == "Numbers"
    (tmp_path / "udfs" / "my_own.py").unlink()
    assert kind(pickle.loads(pickle.dumps(table))).__module__.endswith("my_own")
