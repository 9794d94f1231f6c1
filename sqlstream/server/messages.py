"""The bodies of requests and answers. OpenAPI's schemas are made of these classes, with their docstrings."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sqlstream.units import Duration, EventTime, ProcessingTime


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body that a client sends: unknown fields are an error."""


class QueryRequest(Request, frozen=True):
    """A state query. JSON has at most `limit` rows, an Arrow stream all.

    With `text`, values are texts as DuckDB writes them, which lose no digit; in a STRUCT each field is a text.
    """

    sql: str
    limit: int = 10_000
    text: bool = False


class DiffRequest(Request, frozen=True):
    """Arguments of `sqlstream.diff`: `state` is `job.operator`; versions are numbers, times in UTC, or savepoints.

    `limit` and `text` are as in a query.
    """

    state: str
    older: int | str
    newer: int | str
    limit: int = 10_000
    text: bool = False


class WhyRequest(Request, frozen=True):
    """Arguments of `sqlstream.why`: `state` is `job.operator`; `key` has the values by key columns, or in their order.

    `version` is a number, a time in UTC, or a savepoint (default: the newest version).
    """

    state: str
    key: dict[str, str | int | float | bool | None] | list[str | int | float | bool | None] = {}
    version: int | str | None = None


class SubmitRequest(Request, frozen=True):
    """A script. `settings` are as in `--set`, `tables` has options of tables as in `--set-table`.

    `fresh` names jobs that start anew; true means all. With `savepoint`, the savepoint's job continues from there; `as_job` names
    the job that continues instead. With `upgrade`, jobs continue although their queries have changed; `migrate` has MIGRATE STATE
    statements. If `only` names jobs, only these run.
    """

    sql: str
    settings: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}
    fresh: tuple[str, ...] | bool = ()
    savepoint: str | None = None
    as_job: str | None = None
    upgrade: bool = False
    migrate: str | None = None
    only: tuple[str, ...] = ()


class PlanRequest(Request, frozen=True):
    """A script that is planned, not started. `stage` is as in `sqlstream explain`, or `plan`, `physical` or `batch`."""

    sql: str
    settings: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}
    migrate: str | None = None
    stage: Literal["plan", "ast", "logical", "optimized", "physical", "state", "batch"] = "plan"


class VerifyRequest(Request, frozen=True):
    """How a job is verified: at a `version` (default: the newest), with its script in `sql` if its tables are unknown."""

    version: int | str | None = None
    sql: str | None = None
    settings: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}


class StopRequest(Request, frozen=True):
    """How a job stops. With `drain` it ends for good. Then a `savepoint` of this name is taken, if set; `""` chooses a name."""

    drain: bool = False
    savepoint: str | None = None


class SavepointName(Request, frozen=True):
    """The name of a savepoint (default: `<job>-<version>`)."""

    name: str | None = None


class StatementAnswer(msgspec.Struct, frozen=True):
    """The answer to a SHOW, DESCRIBE or EXPLAIN in a script, as texts."""

    columns: list[str]
    rows: list[list[str | None]]


class SubmissionReply(msgspec.Struct, frozen=True):
    """A submission: its id (null if there was nothing to run), its jobs, warnings, and answers to its questions."""

    id: str | None
    jobs: list[str]
    warnings: list[str]
    answers: list[StatementAnswer]


class ActionReply(msgspec.Struct, frozen=True):
    """What was done, in a sentence."""

    message: str


class JobSummary(msgspec.Struct, frozen=True):
    """A job of the warehouse; times are texts in UTC. `supervised` says how the server supervises it; null if it does not."""

    job: str
    status: str | None
    version: int | None
    watermark: str | None
    rows_in: int | None
    rows_out: int | None
    started_at: str | None
    updated_at: str | None
    pid: int | None
    error: str | None
    sql: str | None
    restarts: int | None
    engine: str | None = None
    supervised: str | None = None


class StateWindow(msgspec.Struct, frozen=True):
    """The columns of a state with the bounds of its windows; sessions grow.

    A window closes when the watermark, less the operator's `delay`, passes its end plus the `lateness`: both are microseconds.
    """

    start: str | None
    end: str
    lateness: Duration
    delay: Duration
    grows: bool


class StateSummary(msgspec.Struct, frozen=True):
    """A view of an operator's state, which a query reads as `state.<job>.<name>`: its result so far, or other stored rows.

    `key` has the key columns. `window` is set if the rows are results of windows.
    """

    name: str
    operator: str
    kind: str
    key: list[str]
    bound: str
    window: StateWindow | None = None


class VersionSummary(msgspec.Struct, frozen=True):
    """A version of a job, as in the event `batch`: times are microseconds since 1970, rows are counted since the job began.

    `state_rows` is the number of rows that the operator of the requested state stores.
    """

    version: int
    committed_at: ProcessingTime
    watermark: EventTime | str | None
    rows_in: int
    rows_out: int
    state_rows: int | None = None


class VersionList(msgspec.Struct, frozen=True):
    """The versions of a job that can be queried, oldest first."""

    job: str
    versions: list[VersionSummary]


class JobDetails(msgspec.Struct, frozen=True):
    """A job with its operators, sources, restarts and checks, as in the tables `sqlstream.*`, its plan and its states."""

    job: JobSummary
    operators: list[dict[str, Any]]
    watermarks: list[dict[str, Any]]
    restarts: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    plan: str | None
    graph: dict[str, Any]
    states: list[StateSummary] = []


class Jobs(msgspec.Struct, frozen=True):
    """The jobs of the warehouse."""

    jobs: list[JobSummary]


class Batches(msgspec.Struct, frozen=True):
    """Batches of a job, each as in the event `batch`: rows since the job began, and the batch's duration by phase."""

    job: str
    batches: list[dict[str, Any]]


class Savepoints(msgspec.Struct, frozen=True):
    """The savepoints of the warehouse, as in `sqlstream.savepoints`."""

    savepoints: list[dict[str, Any]]


class SavepointReply(msgspec.Struct, frozen=True):
    """A savepoint that was taken."""

    savepoint: str
    job: str
    version: int


class Plan(msgspec.Struct, frozen=True):
    """A plan, or the upgrade plan of a job, as text."""

    plan: str


class Plans(msgspec.Struct, frozen=True):
    """The upgrade plans of the jobs whose queries have changed, as texts."""

    plans: list[str]


class VerificationReply(msgspec.Struct, frozen=True):
    """How a job's results differ from a batch over its input, as text. `explained` is true if every difference is explained."""

    text: str
    explained: bool


class ColumnType(msgspec.Struct, frozen=True):
    """A column of a result, with its DuckDB type."""

    name: str
    type: str


class QueryRows(msgspec.Struct, frozen=True):
    """Rows of a query. `truncated` is true if there are more rows than these."""

    columns: list[ColumnType]
    rows: list[list[Any]]
    truncated: bool = False


class QueryableRelation(msgspec.Struct, frozen=True):
    """A relation that a query can read. `path` has the parts of its name: one for a table of the warehouse."""

    name: str
    columns: str
    path: list[str]


class RelationList(msgspec.Struct, frozen=True):
    """The relations that a query can read."""

    relations: list[QueryableRelation]


class LookupReply(msgspec.Struct, frozen=True):
    """The rows of a state for a key, at a version."""

    version: int
    watermark: str | None
    columns: list[ColumnType]
    rows: list[list[Any]]


class Health(msgspec.Struct, frozen=True):
    """The health of the server: `active` if it supervises the jobs of the warehouse; otherwise it is a standby."""

    status: str
    active: bool
    version: str
