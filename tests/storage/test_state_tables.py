"""A bucket's tables: what operators see now, what every retained version sees later, and how many files that takes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from duckdb.sqltypes import BIGINT, HUGEINT, TIMESTAMP
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.catalog import Column
from sqlstream.duck.sql import Select
from sqlstream.storage import compaction
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.compaction import LARGEST_MERGED, due, segment_bound
from sqlstream.storage.manifests import HISTORY_LENGTH, Manifest, Moment, horizon, thinned
from sqlstream.storage.retention import sweep_directory
from sqlstream.storage.segments import BATCH_COLUMN, Segment, scan, write_segment
from sqlstream.units import END_OF_INPUT, NO_TIME, SECOND, Duration, EventTime, ProcessingTime, from_millis
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import BucketedPaths
from tests.properties.examples import examples

FS = LocalFilesystem()
HOUR = Duration(3600 * SECOND)
CON = duckdb.connect(config={"threads": 1})

COUNTS = TableDeclaration(
    "counts",
    (Column("k", "BIGINT"), Column("n", "HUGEINT"), Column("e", "TIMESTAMP")),
    time_column="e",
    merge=Select("SELECT k, sum(n) AS n, e FROM merged_rows GROUP BY k, e"),
)
PLAIN = TableDeclaration("plain", COUNTS.columns, time_column="e")
EVENTS = TableDeclaration("events", COUNTS.columns)

Row = tuple[int, int, int]


def rows(*values: Row) -> pa.Table:
    """Make rows of (key, count, end of the window in microseconds)."""
    keys, counts, ends = zip(*values, strict=True) if values else ((), (), ())
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "n": pa.array(counts, pa.decimal128(38, 0)),
            "e": pa.array(ends, pa.timestamp("us")),
        }
    )


def open_bucket(
    directory: Path,
    manifest: str | None = None,
    *tables: TableDeclaration,
    retention: tuple[Duration, int] = (HOUR, 100),
) -> Bucket:
    return Bucket.open(FS, str(directory), 0, tables or (COUNTS,), manifest, *retention)


def read(relation: str | None) -> list[Row]:
    if relation is None:
        return []
    return CON.execute(f"SELECT k, n::BIGINT, epoch_us(e) FROM {relation} ORDER BY ALL").fetchall()


def version(directory: Path, manifest: str, table: TableDeclaration, batch: int, watermark: int | None) -> list[Row]:
    """Read a table as of an earlier version, from a later manifest."""
    segments = Manifest.from_json(manifest).tables[table.name]
    if not segments:
        return []
    seen = f"{BATCH_COLUMN} <= {batch}"
    if watermark is not None and table.time_column:
        seen += f" AND e > make_timestamp({watermark})"
    stored = scan(FS, str(directory / "data" / "0"), table.columns, segments, batch=True)
    return read(f"({stored}) WHERE {seen}")


def test_rows_are_read_in_their_batch_and_in_the_next(tmp_path: Path) -> None:
    bucket = open_bucket(tmp_path)
    assert bucket.relation("counts") is None
    bucket.append("counts", rows(), 0)
    assert bucket.relation("counts") is None
    bucket.append("counts", rows((1, 1, 10)), 0)
    bucket.append("counts", rows((2, 1, 20)), 0)
    assert read(bucket.relation("counts")) == [(1, 1, 10), (2, 1, 20)]
    assert len(bucket.segments("counts")) == 1
    bucket.counters["late_rows"] = 3
    bucket.event_timer = EventTime(10)
    bucket = open_bucket(tmp_path, bucket.commit(CON, 0, from_millis(1000), None))
    bucket.append("counts", rows((3, 1, 10)), 1)
    assert read(bucket.relation("counts", up_to=EventTime(10))) == [(1, 1, 10), (3, 1, 10)]
    assert read(bucket.relation("counts", up_to=EventTime(9))) == []
    assert (bucket.counters, bucket.event_timer, bucket.live_rows) == ({"late_rows": 3}, 10, 3)
    assert [c[:2] for c in CON.sql(f"FROM {bucket.relation('counts')}").description] == [
        ("k", BIGINT),
        ("n", HUGEINT),
        ("e", TIMESTAMP),
    ]


def test_forgetting_counts_what_remains_and_asks_only_where_it_cuts(tmp_path: Path) -> None:
    bucket = open_bucket(tmp_path)
    for batch, ends in enumerate([(10, 20), (15, 30), (40, 50)]):
        bucket.append("counts", rows(*((1, 1, end) for end in ends)), batch)
    assert bucket.forget(CON, "counts", EventTime(9)) == 10
    assert bucket.forget(CON, "counts", EventTime(20)) == 30
    assert [(s.live, s.live_low) for s in bucket.segments("counts")] == [(0, None), (1, 30), (2, 40)]
    assert read(bucket.relation("counts")) == [(1, 1, 30), (1, 1, 40), (1, 1, 50)]
    closed = duckdb.connect()
    closed.close()
    # Up to 29 no segment loses some of its rows; nor does anything happen when the watermark stays or goes back.
    assert bucket.forget(closed, "counts", EventTime(29)) == 30
    assert bucket.forget(closed, "counts", EventTime(5)) == 30
    assert bucket.forget(closed, "counts", END_OF_INPUT) is None
    assert bucket.relation("counts") is None
    with pytest.raises(duckdb.Error):
        open_bucket_with(tmp_path / "b", (10, 20)).forget(closed, "counts", EventTime(15))


def open_bucket_with(directory: Path, ends: tuple[int, ...]) -> Bucket:
    bucket = open_bucket(directory)
    bucket.append("counts", rows(*((1, 1, end) for end in ends)), 0)
    return bucket


def test_older_versions_see_what_was_forgotten_and_not_what_came_later(tmp_path: Path) -> None:
    bucket = open_bucket(tmp_path)
    bucket.append("counts", rows((1, 1, 10), (1, 1, 20)), 0)
    first = bucket.commit(CON, 0, from_millis(1000), None)
    bucket = open_bucket(tmp_path, first)
    bucket.append("counts", rows((2, 1, 30)), 1)
    second = bucket.commit(CON, 1, from_millis(2000), EventTime(10))
    assert read(open_bucket(tmp_path, second).relation("counts")) == [(1, 1, 20), (2, 1, 30)]
    assert version(tmp_path, second, COUNTS, 0, None) == [(1, 1, 10), (1, 1, 20)]
    assert version(tmp_path, second, COUNTS, 1, 10) == [(1, 1, 20), (2, 1, 30)]
    # An attempt that never committed left files that nobody sees.
    bucket = open_bucket(tmp_path, first)
    bucket.append("counts", rows((9, 9, 90)), 1)
    assert read(bucket.relation("counts"))[-1] == (9, 9, 90)
    assert read(open_bucket(tmp_path, second).relation("counts")) == [(1, 1, 20), (2, 1, 30)]


def test_a_table_without_a_time_keeps_its_rows(tmp_path: Path) -> None:
    bucket = open_bucket(tmp_path, None, EVENTS, retention=(NO_TIME, 0))
    manifest = None
    for batch in range(20):
        bucket = open_bucket(tmp_path, manifest, EVENTS, retention=(NO_TIME, 0))
        bucket.append("events", rows((batch, 1, 0)), batch)
        assert bucket.forget(CON, "events", END_OF_INPUT) is None
        manifest = bucket.commit(CON, batch, ProcessingTime(batch), END_OF_INPUT)
    assert manifest
    assert [row[0] for row in read(bucket.relation("events"))] == list(range(20))
    for batch in range(20):
        assert len(version(tmp_path, manifest, EVENTS, batch, None)) == batch + 1


def test_segments_of_others_are_adopted(tmp_path: Path) -> None:
    """A sink's tasks write the files; the job's commit takes them over."""
    segment = write_segment(FS, str(tmp_path / "data" / "0"), "events", 0, rows((1, 2, 3)))
    assert segment
    bucket = open_bucket(tmp_path, None, EVENTS)
    bucket.adopt("events", [segment])
    manifest = bucket.commit(CON, 0, ProcessingTime(0), None)
    assert read(open_bucket(tmp_path, manifest, EVENTS).relation("events")) == [(1, 2, 3)]


def test_many_rows_are_written_before_the_commit(tmp_path: Path) -> None:
    bucket = open_bucket(tmp_path, None, EVENTS)
    chunk = rows(*[(1, 2, 3)] * 100_000)
    for _ in range(20):
        bucket.append("events", chunk, 0)
        waiting = chunk.nbytes * 20 - sum(s.rows for s in bucket.segments("events")) * chunk.nbytes // 100_000
        assert waiting <= 20 * chunk.nbytes
    assert len(bucket.segments("events")) == 20 * chunk.nbytes // ((32 << 20) + chunk.nbytes)
    assert CON.execute(f"SELECT count(*) FROM {bucket.relation('events')}").fetchall() == [(2_000_000,)]


@pytest.mark.slow
@pytest.mark.parametrize("retained", [2, 10])
def test_rows_of_retained_versions_are_not_merged_and_others_are(tmp_path: Path, retained: int) -> None:
    manifest = None
    for batch in range(25):
        bucket = open_bucket(tmp_path, manifest, retention=(NO_TIME, retained))
        bucket.append("counts", rows((1, 1, 10), (2, 1, 50)), batch)
        manifest = bucket.commit(CON, batch, ProcessingTime(batch), None)
        if batch in (7, 14, 21):
            # The rows of the batches that no version tells apart became one per key.
            assert [s.rows for s in bucket.segments("counts")] == [2 + 2 * min(retained, batch)]
        found = Manifest.from_json(manifest)
        assert found.oldest == found.history[0].batch == max(0, batch - retained)
        for v in range(found.oldest, batch + 1):
            seen = version(tmp_path, manifest, COUNTS, v, None)
            assert totals(seen) == {(1, 10): v + 1, (2, 50): v + 1}


def test_forgotten_segments_leave_the_manifest_when_no_version_sees_them(tmp_path: Path) -> None:
    manifest = None
    left = []
    for batch in range(6):
        bucket = open_bucket(tmp_path, manifest, retention=(NO_TIME, 2))
        bucket.append("counts", rows((1, 1, 10 * batch + 10)), batch)
        manifest = bucket.commit(CON, batch, ProcessingTime(batch), EventTime(10 * batch))
        left.append([s.first_batch for s in bucket.segments("counts")])
    # Version 3 has the watermark 30: it does not see what the batches 0, 1 and 2 added.
    assert left == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]


batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(0, 60)), min_size=1, max_size=3),
        st.integers(0, 5),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@examples(25)
@given(batches=batches, retention=st.integers(0, 12), declaration=st.sampled_from([COUNTS, PLAIN]))
def test_every_retained_version_reads_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[Row], int, bool]],
    retention: int,
    declaration: TableDeclaration,
) -> None:
    """Whatever compaction and retention did, the newest manifest yields what a plain list of all rows yields."""
    directory = tmp_path_factory.mktemp("bucket")
    name = declaration.name
    everything: list[tuple[int, Row]] = []
    watermarks: list[int] = []
    manifest, watermark = None, 0
    for batch, (added, step, explicitly) in enumerate(batches):
        bucket = open_bucket(directory, manifest, declaration, retention=(NO_TIME, retention))
        # Ends are never before the watermark, as lateness sees to.
        new = [(k, n, watermark + 1 + e) for k, n, e in added]
        everything += [(batch, row) for row in new]
        bucket.append(name, rows(*new), batch)
        assert totals(read(bucket.relation(name))) == totals([r for _, r in everything if r[2] > watermark])
        watermark += step
        remaining = [r[2] for _, r in everything if r[2] > watermark]
        if explicitly:
            assert bucket.forget(CON, name, EventTime(watermark)) == min(remaining, default=None)
        manifest = bucket.commit(CON, batch, ProcessingTime(batch), EventTime(watermark))
        watermarks.append(watermark)
        assert bucket.live_rows == len(read(bucket.relation(name)))
        assert bucket.forget(CON, name, EventTime(watermark)) == min(remaining, default=None)
    assert manifest
    oldest = Manifest.from_json(manifest).oldest
    assert oldest <= max(0, len(batches) - 1 - retention)
    for v in range(oldest, len(batches)):
        expected = [r for b, r in everything if b <= v and r[2] > watermarks[v]]
        assert totals(version(directory, manifest, declaration, v, watermarks[v])) == totals(expected)


def totals(found: list[Row]) -> dict[tuple[int, int], int]:
    sums: dict[tuple[int, int], int] = {}
    for k, n, e in found:
        sums[k, e] = sums.get((k, e), 0) + n
    return sums


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("size", "batches", "most"), [(20, 500, 10.0), (3000, 200, 4.0)])
def test_many_batches_leave_few_files(tmp_path: Path, size: int, batches: int, most: float) -> None:
    """Small batches for five minutes, then larger ones: few segments, few files on disk, little written again."""
    manifest, known, compacted, fresh, fewest = None, set[str](), 0, 0, []
    for batch in range(batches):
        bucket = open_bucket(tmp_path, manifest, retention=(Duration(60 * SECOND), 100))
        start = batch * 1_000_000
        bucket.append("counts", rows(*((k, 1, start + 1 + k) for k in range(size))), batch)
        manifest = bucket.commit(CON, batch, from_millis(batch * 600), EventTime(start - 5_000_000))
        segments = bucket.segments("counts")
        assert len(segments) <= segment_bound(bucket.bytes)
        for segment in segments:
            if segment.name not in known:
                known.add(segment.name)
                compacted += segment.bytes if segment.compacted else 0
                fresh += 0 if segment.compacted else segment.bytes
        fewest.append(len(segments))
    assert manifest
    print(f"{size} rows a batch: {max(fewest)} segments at most, {(compacted + fresh) / fresh:.1f} times written")
    assert max(fewest) <= 21
    assert compacted / fresh < most
    assert size * 100 <= sum(s.rows for s in segments) <= size * 250
    now = max(f.modified for f in FS.files(str(tmp_path / "data" / "0"))) + 61 * SECOND
    sweep_directory(FS, BucketedPaths(str(tmp_path)), batches - 1, ProcessingTime(now))
    assert len(list((tmp_path / "manifests" / "0").iterdir())) <= 3
    assert len(list((tmp_path / "data" / "0").iterdir())) <= len(segments) + 12


def test_large_segments_are_left_alone() -> None:
    large = [seg(i, LARGEST_MERGED) for i in range(20)]
    assert due(large) == []
    nearly = [seg(i, LARGEST_MERGED - 1) for i in range(8)]
    assert due(nearly[:7] + large) == []
    assert due(nearly + large) == nearly
    small = [seg(i, 100) for i in range(9)]
    assert due(nearly + small) == small


def test_large_segments_that_are_forgotten_wait_until_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LARGE_FORGOTTEN", 1)
    monkeypatch.setattr(compaction, "MOST_FORGOTTEN", 20)
    manifest, numbers = None, []
    for batch in range(60):
        bucket = open_bucket(tmp_path, manifest, PLAIN)
        bucket.append("plain", rows((1, 1, batch)), batch)
        manifest = bucket.commit(CON, batch, ProcessingTime(batch), EventTime(batch))
        numbers.append(len(bucket.segments("plain")))
    assert numbers[:27] == [*range(1, 28)]
    assert max(numbers) == 27
    assert manifest
    assert version(tmp_path, manifest, PLAIN, 40, 30) == [(1, 1, end) for end in range(31, 41)]


def seg(i: int, size: int) -> Segment:
    return Segment(f"s{i}", 1, size, i, i)


def test_history_is_thinned_evenly_and_never_loses_the_horizon() -> None:
    history: tuple[Moment, ...] = ()
    for batch in range(12_000):
        moments = [*history, Moment(batch, from_millis(batch * 300), EventTime(batch))]
        bound = horizon(moments, HOUR, 100)
        history = thinned([m for m in moments if bound is None or m.batch >= bound.batch])
        assert len(history) <= HISTORY_LENGTH
    times = [m.time for m in history]
    # An hour on 64 moments is one in 57 s; one horizon is at most two of such steps too early.
    assert max(b - a for a, b in pairwise(times)) <= 2.5 * HOUR / HISTORY_LENGTH
    assert history[-1].batch == 11_999


def test_horizon_keeps_the_longer_of_time_and_batches() -> None:
    history = [Moment(batch, from_millis(batch * 1000), None) for batch in range(200)]
    assert horizon(history, Duration(50 * SECOND), 100) == history[99]
    assert horizon(history, Duration(150 * SECOND), 100) == history[49]
    assert horizon(history, Duration(500 * SECOND), 100) is None
    assert horizon(history, Duration(0), 0) == history[-1]


def test_a_longer_retention_does_not_bring_back_what_is_gone(tmp_path: Path) -> None:
    manifest = None
    for batch in range(10):
        bucket = open_bucket(tmp_path, manifest, retention=(NO_TIME, 2) if batch < 6 else (HOUR, 100))
        bucket.append("counts", rows((1, 1, batch)), batch)
        manifest = bucket.commit(CON, batch, ProcessingTime(batch), EventTime(batch - 1))
    assert manifest
    assert Manifest.from_json(manifest).oldest == 3
