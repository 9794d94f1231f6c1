"""The bodies of requests and answers; OpenAPI's schemas are made of these."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sqlstream.units import Duration, EventTime, ProcessingTime


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body that a client sends: fields that are not known are an error."""


class QueryRequest(Request, frozen=True):
    """A state query. As JSON at most `limit` rows are sent; as an Arrow stream all.

    With `text` values are texts as DuckDB writes them, in which no digit is lost; of a STRUCT each field is one.
    """

    sql: str
    limit: int = 10_000
    text: bool = False


class DiffRequest(Request, frozen=True):
    """What is asked of `sqlstream.diff`: `state` is `job.operator`; versions are numbers, times in UTC, or savepoints.

    `limit` and `text` are those of a query.
    """

    state: str
    older: int | str
    newer: int | str
    limit: int = 10_000
    text: bool = False


class WhyRequest(Request, frozen=True):
    """What is asked of `sqlstream.why`: `state` is `job.operator`; `key` has the values by key columns, or in their order.

    `version` is a number, a time in UTC, or a savepoint; without one the newest version is explained.
    """

    state: str
    key: dict[str, str | int | float | bool | None] | list[str | int | float | bool | None] = {}
    version: int | str | None = None


class SubmitRequest(Request, frozen=True):
    """A script. `settings` are as those of `--set`, `tables` the options of tables as those of `--set-table`.

    `fresh` names jobs that begin anew; if it is true, all do. With `savepoint` its job goes on from there, with `as_job` as
    another one. With `upgrade` jobs go on whose queries have changed; `migrate` has MIGRATE STATE statements. No
    other jobs of the script run than those that `only` names, if it does.
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
    """A script that is planned, and not started. `stage` is that of `sqlstream explain`, or `plan`, `physical` or `batch`."""

    sql: str
    settings: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}
    migrate: str | None = None
    stage: Literal["plan", "ast", "logical", "optimized", "physical", "state", "batch"] = "plan"


class VerifyRequest(Request, frozen=True):
    """How a job is verified: at a `version`, by default the newest; by its script, or by what the warehouse knows of that."""

    version: int | str | None = None
    sql: str | None = None
    settings: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}


class StopRequest(Request, frozen=True):
    """How a job is to stop: with `drain` for good; a `savepoint` is taken of it then, with `""` under a name of its own."""

    drain: bool = False
    savepoint: str | None = None


class SavepointName(Request, frozen=True):
    """The name of a savepoint; without one it is called `<job>-<version>`."""

    name: str | None = None


class Answered(msgspec.Struct, frozen=True):
    """What SHOW, DESCRIBE or EXPLAIN in a script answered, as texts."""

    columns: list[str]
    rows: list[list[str | None]]


class Submitted(msgspec.Struct, frozen=True):
    """What was submitted: its id (none where there was nothing to run), its jobs, what to know about them, and answers."""

    id: str | None
    jobs: list[str]
    warnings: list[str]
    answers: list[Answered]


class Done(msgspec.Struct, frozen=True):
    """What was done, in a sentence."""

    message: str


class JobSummary(msgspec.Struct, frozen=True):
    """A job of the warehouse; times are texts in UTC. `supervised` says what the server does about it, if anything."""

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
    supervised: str | None = None


class StateWindow(msgspec.Struct, frozen=True):
    """The columns of a state that have the bounds of its windows; sessions grow.

    A window closes when the watermark, less the operator's `delay`, passes its end plus the `lateness`: both are microseconds.
    """

    start: str | None
    end: str
    lateness: Duration
    delay: Duration
    grows: bool


class StateSummary(msgspec.Struct, frozen=True):
    """Something that an operator keeps, which a query reads as `state.<job>.<name>`: its result so far, or other rows.

    `key` are the key columns. `window` is set where the rows are results of windows.
    """

    name: str
    operator: str
    kind: str
    key: list[str]
    bound: str
    window: StateWindow | None = None


class VersionSummary(msgspec.Struct, frozen=True):
    """A version of a job, as the event `batch` has it: times are microseconds since 1970, rows those since the job began.

    `state_rows` are the rows that the operator stores that was asked about.
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
    """A job with its operators, sources, restarts and checks, as the tables `sqlstream.*` have them, its plan and its state."""

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
    """Batches of a job, each as the event `batch` has it: rows since the job began, and how long the batch took, by phase."""

    job: str
    batches: list[dict[str, Any]]


class Savepoints(msgspec.Struct, frozen=True):
    """The savepoints of the warehouse, as `sqlstream.savepoints` has them."""

    savepoints: list[dict[str, Any]]


class SavepointTaken(msgspec.Struct, frozen=True):
    """A savepoint that was taken."""

    savepoint: str
    job: str
    version: int


class Plan(msgspec.Struct, frozen=True):
    """A plan, or what becomes of a job's state, as text."""

    plan: str


class Plans(msgspec.Struct, frozen=True):
    """What becomes of the states of several jobs, as texts: of those whose queries have changed."""

    plans: list[str]


class Verified(msgspec.Struct, frozen=True):
    """How what a job wrote differs from a batch over what it read, as text; `explained` tells whether all differences are."""

    text: str
    explained: bool


class ColumnType(msgspec.Struct, frozen=True):
    """A column of a result, with its type in DuckDB."""

    name: str
    type: str


class QueryRows(msgspec.Struct, frozen=True):
    """Rows of a query; it is `truncated` where there are more."""

    columns: list[ColumnType]
    rows: list[list[Any]]
    truncated: bool = False


class QueryableRelation(msgspec.Struct, frozen=True):
    """Something that a query can read. `path` has the parts of its name: one for a table of the warehouse."""

    name: str
    columns: str
    path: list[str]


class RelationList(msgspec.Struct, frozen=True):
    """What a query can read."""

    relations: list[QueryableRelation]


class Looked(msgspec.Struct, frozen=True):
    """The rows that a state has for a key, at a version."""

    version: int
    watermark: str | None
    columns: list[ColumnType]
    rows: list[list[Any]]


class Health(msgspec.Struct, frozen=True):
    """How the server is: it is `active` where it supervises the jobs of the warehouse, otherwise it waits for its turn."""

    status: str
    active: bool
    version: str
