"""What a warehouse knows about its jobs: their records, their status, and what they have committed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlstream.errors import DamageError, OtherVersionError
from sqlstream.storage.filesystem import Filesystem, JobPaths
from sqlstream.storage.locks import read_holder
from sqlstream.storage.manifests import TableDeclaration
from sqlstream.storage.records import CHANGED, CUT, EMPTY, GONE, damage, digest, read_sealed, write_sealed

FORMAT = 6

RUNNING: Final = "RUNNING"
FINISHED: Final = "FINISHED"
STOPPED: Final = "STOPPED"
# Its input was ended by hand: its windows are closed, so that it cannot go on.
DRAINED: Final = "DRAINED"
FAILED: Final = "FAILED"
# Never written: a job that says RUNNING and whose process is gone.
LOST: Final = "LOST"

_DRAIN = "drain"

Columns = tuple[tuple[str, str], ...]


# The kind of sink that is a warehouse table.
TABLE = "table"


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """A table that a job reads, with the watermark that it declares."""

    name: str
    table: str
    time_column: str | None = None
    watermark_expression: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """A stateful operator: its state tables, and the view of them that people query.

    `view_sql` is a SELECT with `{table}` in place of each state table; `view_columns` are the names and types that it
    yields. `count_sql` selects how many windows are open in the same way, `more_views` what else people query, by name. Its
    watermark is `delay` (microseconds) behind the job's.
    """

    name: str
    kind: str
    key_columns: tuple[str, ...]
    tables: tuple[TableDeclaration, ...]
    view_sql: str
    view_columns: Columns
    bound: str
    count_sql: str = ""
    more_views: tuple[tuple[str, str], ...] = ()
    delay: int = 0

    @property
    def views(self) -> Mapping[str, str]:
        """The SELECTs that people query, by name."""
        return {self.name: self.view_sql, **dict(self.more_views)}


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """Where the results go: the kind of sink, the table's name, and the columns written.

    With `changing` they are written with weights; of the rows of a `key` a table holds one: with `upserts` the last one. Where
    a batch can have several, columns behind the others tell their `order`.
    """

    kind: str
    table: str
    columns: Columns
    changing: bool = False
    key: tuple[str, ...] = ()
    upserts: bool = False
    order: Columns = ()


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What stays the same while a job lives: its SQL, its plan, the shape of its state, and what it was made with."""

    job: str
    sql: str
    plan_fingerprint: str
    plan_text: str
    created_at: int
    versions: Mapping[str, str]
    bucket_labels: tuple[int, ...]
    partitions: int
    scans: tuple[ScanRecord, ...]
    operators: tuple[OperatorRecord, ...]
    sinks: tuple[SinkRecord, ...]

    def sink(self, table: str) -> SinkRecord | None:
        """Return the sink that is a table of the warehouse with a name, matched without regard to case."""
        return next((s for s in self.sinks if s.kind == TABLE and s.table.lower() == table.lower()), None)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **_plain(self)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> JobRecord:
        value = json.loads(text)
        if value.pop("format") != FORMAT:
            raise OtherVersionError(
                f'job "{value["job"]}" was made by another version of sqlstream',
                hint="Run it with that version, or start it anew with --fresh.",
            )
        value["bucket_labels"] = tuple(value["bucket_labels"])
        value["scans"] = tuple(ScanRecord(**scan) for scan in value["scans"])
        value["operators"] = tuple(_operator(operator) for operator in value["operators"])
        value["sinks"] = tuple(
            SinkRecord(
                **{
                    **sink,
                    "columns": _columns(sink["columns"]),
                    "key": tuple(sink["key"]),
                    "order": _columns(sink.get("order", [])),
                }
            )
            for sink in value["sinks"]
        )
        return cls(**value)


def _plain(value: Any) -> Any:
    match value:
        case TableDeclaration():
            return value.to_dict()
        case JobRecord() | ScanRecord() | OperatorRecord() | SinkRecord():
            return {name: _plain(getattr(value, name)) for name in value.__slots__}
        case tuple():
            return [_plain(v) for v in value]
        case Mapping():
            return dict(value)
    return value


def _operator(value: dict[str, Any]) -> OperatorRecord:
    return OperatorRecord(
        **{
            **value,
            "key_columns": tuple(value["key_columns"]),
            "tables": tuple(TableDeclaration.from_dict(table) for table in value["tables"]),
            "view_columns": _columns(value["view_columns"]),
            "more_views": _columns(value["more_views"]),
        }
    )


def _columns(value: list[list[str]]) -> Columns:
    return tuple((name, type) for name, type in value)


@dataclass(frozen=True, slots=True)
class Status:
    """How a job is doing: RUNNING, FINISHED, DRAINED, STOPPED or FAILED (and why); times in milliseconds.

    Of a job that has ended, `version` is the newest one that was committed.
    """

    state: str
    pid: int
    host: str
    started_at: int
    updated_at: int
    error: str | None = None
    version: int | None = None

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> Status:
        return cls(**json.loads(text))


def write_record(fs: Filesystem, job: JobPaths, record: JobRecord) -> None:
    write_sealed(fs, job.record, record.to_json(), durable=True)


def read_record(fs: Filesystem, job: JobPaths) -> JobRecord | None:
    """Return the record of a job, None when there is none. Raises DamageError when it is not whole, and OtherVersionError."""
    try:
        text = read_sealed(fs, job.record)
    except FileNotFoundError:
        if last_committed(fs, job) is not None:
            raise damage(job.record, GONE, hint=_LOST_RECORD) from None
        return None
    except DamageError as error:
        # Earlier versions did not seal it.
        older = _unsealed(fs, job.record)
        if older is None:
            raise damage(error.path, error.fault, hint=_LOST_RECORD) from error
        text = older
    return JobRecord.from_json(text)


_LOST_RECORD = "Bring the file back from a copy, or start the job anew with --fresh."


def _unsealed(fs: Filesystem, path: str) -> str | None:
    """Return a record as earlier versions wrote it."""
    try:
        text = fs.read_text(path)
        return text if json.loads(text)["format"] < FORMAT else None
    except (ValueError, TypeError, KeyError):
        return None


def write_status(fs: Filesystem, job: JobPaths, status: Status) -> None:
    write_sealed(fs, job.status, status.to_json())


def read_status(fs: Filesystem, job: JobPaths) -> Status | None:
    """Return what a job last said of itself; its process may be gone (`effective_status`).

    None before it started, and when what it said is damaged: nothing but messages depends on it.
    """
    try:
        return Status.from_json(read_sealed(fs, job.status))
    except (FileNotFoundError, DamageError):
        return None


def effective_status(fs: Filesystem, job: JobPaths) -> Status | None:
    """Return the status of a job, which is LOST when it says RUNNING and its process is gone."""
    status = read_status(fs, job)
    if status is None or status.state != RUNNING:
        return status
    holder = read_holder(fs, job)
    if holder is not None and (holder.is_alive or not (fs.local or holder.is_here)):
        return status
    # It may have ended between the two looks.
    status = read_status(fs, job)
    return replace(status, state=LOST) if status is not None and status.state == RUNNING else status


def request_stop(fs: Filesystem, job: JobPaths, *, drain: bool = False) -> None:
    """Ask the process that runs a job to end it, with `drain` as at the end of its input."""
    fs.write_text_atomic(job.stop, _DRAIN if drain else "")


def requested_stop(fs: Filesystem, job: JobPaths) -> str | None:
    """Return as what a job is to end, STOPPED or DRAINED; None when nobody has asked."""
    try:
        return DRAINED if fs.read_text(job.stop) == _DRAIN else STOPPED
    except FileNotFoundError:
        return None


# Of a commit; behind Spark's version there is no digest.
_COMMIT_VERSION = re.compile(r"v\d+(?: ([0-9a-f]{16}))?")


def last_committed(fs: Filesystem, job: JobPaths) -> int | None:
    """Return the newest version, None before the first commit. Raises DamageError when its commit is not whole."""
    newest = max((int(name) for name in fs.list(job.commits) if name.isdigit()), default=None)
    if newest is not None and (fault := commit_fault(fs, f"{job.commits}/{newest}")):
        raise damage(f"{job.commits}/{newest}", fault)
    return newest


def write_commit(fs: Filesystem, job: JobPaths, version: int, watermark: int = 0) -> None:
    """Commit a version as Spark does: `watermark` is that of the next batch, in Spark's milliseconds."""
    body = json.dumps({"nextBatchWatermarkMs": watermark})
    fs.write_text_atomic(f"{job.commits}/{version}", f"v1 {digest(body)}\n{body}")


def committed_watermark(fs: Filesystem, job: JobPaths, version: int) -> int:
    """Return the watermark that a commit gives to the next batch, in Spark's milliseconds."""
    return int(json.loads(fs.read_text(f"{job.commits}/{version}").splitlines()[1])["nextBatchWatermarkMs"])


def commit_fault(fs: Filesystem, path: str) -> str | None:
    """Return what is wrong with a commit as far as can be told from itself: Spark's is empty or cut off, ours has a digest."""
    try:
        return commit_text_fault(fs.read_text(path))
    except FileNotFoundError:
        return GONE
    except UnicodeDecodeError:
        return CHANGED


def commit_text_fault(text: str) -> str | None:
    """Return what is wrong with the text of a commit, or of another log of Spark's: a version, then lines of JSON."""
    version, _, body = text.partition("\n")
    try:
        for line in body.splitlines():
            if line != "-":
                json.loads(line)
    except ValueError:
        return EMPTY if not text.strip("\0") else CUT
    if not body or not (found := _COMMIT_VERSION.fullmatch(version)):
        return EMPTY if not text.strip("\0") else CUT
    return CHANGED if found[1] and found[1] != digest(body) else None
