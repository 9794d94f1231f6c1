"""The endpoints of the server: the list ENDPOINTS determines its routes, and their description in OpenAPI."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from sqlstream.distribution import VERSION
from sqlstream.errors import UsageError, missing
from sqlstream.jobs import ending
from sqlstream.jobs.savepoints.named_savepoints import drop_savepoint, take_savepoint
from sqlstream.monitoring.endpoint import exposition, registry
from sqlstream.queries.lookup import Lookups
from sqlstream.queries.outlook import event_time
from sqlstream.server import messages
from sqlstream.server.access import Role
from sqlstream.server.batches import batches
from sqlstream.server.computations import (
    Computation,
    batch_query_of,
    plan_of,
    submission_of,
    upgrade_plan_of,
    upgrade_plans_of,
    verification_of,
)
from sqlstream.server.connections import Connections
from sqlstream.server.events import Events
from sqlstream.server.http_answers import ARROW, HttpQuery
from sqlstream.server.messages import ActionReply
from sqlstream.server.overview import Overview
from sqlstream.server.placeholders import check_text
from sqlstream.server.problems import HttpError
from sqlstream.server.queries import Queries
from sqlstream.server.settings import ServerSettings
from sqlstream.server.states import versions_of
from sqlstream.server.submissions import is_going_on
from sqlstream.server.supervisor import Supervisor
from sqlstream.server.table_tails import TableTails
from sqlstream.server.turns import RequestTurns
from sqlstream.session.rendering import json_row
from sqlstream.session.session import Session
from sqlstream.session.state_tools import diff_sql, why_sql
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import effective_status, request_stop

EVENT_STREAM = "text/event-stream"
PLAIN = "text/plain"
# The supervising server may take this many seconds to notice that a job was stopped.
_NOTICED_SECONDS = 20.0
# Far more rows than sqlstream.why has for a key.
_FINDINGS = 100_000
# More rows than any result has; DuckDB takes no larger number.
_MOST_ROWS = 1 << 62
# The most digits of a version.
_LONGEST = 18


@dataclass(frozen=True)
class Service:
    """The parts of a running server that endpoints use."""

    settings: ServerSettings
    warehouse: Warehouse
    supervisor: Supervisor
    overview: Overview
    queries: Queries
    compilations: RequestTurns
    verifications: RequestTurns
    events: Events
    tails: TableTails
    lookups: Lookups
    connections: Connections

    @cached_property
    def metrics(self) -> Any:
        """The registry of the metrics of all jobs. Raises UsageError if its library is not installed."""
        return registry(self.warehouse)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request: the role of its client, the parts of its path, its parameters, and its body."""

    service: Service
    role: Role
    path: Mapping[str, str]
    parameters: Mapping[str, Sequence[str]]
    body: Any = None

    def parameter(self, name: str) -> str | None:
        """Return the value of a parameter, None without it. Raises UsageError if it is repeated."""
        values = self.parameters.get(name, ())
        if len(values) > 1:
            raise UsageError(f'the parameter "{name}" is there {len(values)} times')
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class UrlParameter:
    """A parameter of the query of a URL."""

    name: str
    description: str
    required: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """A method of a path: the role that it needs (None: no token), the request's body and parameters, and the answer's status."""

    method: str
    path: str
    role: Role | None
    summary: str
    body: type[messages.Request] | None = field(default=None, kw_only=True)
    parameters: tuple[UrlParameter, ...] = field(default=(), kw_only=True)
    status: int = field(default=200, kw_only=True)


@dataclass(frozen=True, slots=True)
class CallEndpoint(HttpOperation):
    """An endpoint whose answer is the result of `call`, which runs in a thread of the server."""

    call: Callable[[HttpCall], msgspec.Struct]
    answer: type[msgspec.Struct]
    # The media types of answers beside JSON.
    streams: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class ProcessEndpoint(HttpOperation):
    """An endpoint whose answer a process computes: `computation` returns the call that runs there."""

    computation: Callable[[HttpCall], Computation]
    answer: type[msgspec.Struct]
    streams: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class QueryEndpoint(HttpOperation):
    """An endpoint that answers with the rows of a state query, which `query` returns."""

    query: Callable[[HttpCall], HttpQuery]
    answer: ClassVar[type[msgspec.Struct]] = messages.QueryRows
    streams: ClassVar[tuple[str, ...]] = (ARROW,)


@dataclass(frozen=True, slots=True)
class TextEndpoint(HttpOperation):
    """An endpoint that answers with a text, which `text` makes in a thread of the server."""

    text: Callable[[HttpCall], bytes]
    answer: ClassVar[None] = None
    streams: ClassVar[tuple[str, ...]] = (PLAIN,)


@dataclass(frozen=True, slots=True)
class EventEndpoint(HttpOperation):
    """An endpoint that sends events as they happen, until the client leaves."""

    listen: Callable[[HttpCall], AsyncIterator[bytes]]
    answer: ClassVar[None] = None
    streams: ClassVar[tuple[str, ...]] = (EVENT_STREAM,)


Endpoint = CallEndpoint | ProcessEndpoint | QueryEndpoint | TextEndpoint | EventEndpoint


def _health(call: HttpCall) -> messages.Health:
    return _as_health(call.service)


def _ready(call: HttpCall) -> messages.Health:
    health = _as_health(call.service)
    if not health.active:
        raise HttpError(
            503, "this server does not supervise the jobs: another one does, or the warehouse cannot be written"
        )
    return health


def _as_health(service: Service) -> messages.Health:
    active = service.supervisor.is_active
    return messages.Health("active" if active else "standby", active, VERSION)


def _jobs(call: HttpCall) -> messages.Jobs:
    return call.service.overview.jobs()


def _job(call: HttpCall) -> messages.JobDetails:
    return call.service.overview.job(call.path["job"])


def _batches(call: HttpCall) -> messages.Batches:
    return batches(call.service.warehouse, call.path["job"], call.parameter("last"))


def _stop(call: HttpCall) -> ActionReply:
    """Stop a job, and wait for its end; a job whose process waits for its restart is not started again."""
    service, name, request = call.service, call.path["job"], call.body
    warehouse = service.warehouse
    paths = ending.existing(warehouse, name)
    status = effective_status(warehouse.fs, paths)
    if request.savepoint and request.savepoint.lower() in warehouse.savepoints():
        raise UsageError(f'savepoint "{request.savepoint}" exists already', hint="Give it another name.")
    if (status is None or not status.is_active) and not request.drain and is_going_on(warehouse, name):
        request_stop(warehouse.fs, paths)
    else:
        ending.stop(warehouse, name, drain=request.drain)
    service.supervisor.look()
    _await_supervisor(warehouse, name)
    message = f'job "{name}" {"drained: all its windows are closed" if request.drain else "stopped"}'
    if request.savepoint is not None:
        savepoint = take_savepoint(warehouse, name, request.savepoint or None).record
        message += f'; savepoint "{savepoint.name}" at version {savepoint.version}'
    return ActionReply(message)


def _await_supervisor(warehouse: Warehouse, name: str) -> None:
    """Wait until the supervising server, this or another one, has noticed that a job was stopped; there may be none."""
    deadline = time.monotonic() + _NOTICED_SECONDS
    while is_going_on(warehouse, name) and time.monotonic() < deadline:
        time.sleep(ending.POLL_SECONDS)


def _drop(call: HttpCall) -> ActionReply:
    settings, name, warehouse = call.service.settings, call.path["job"], call.service.warehouse
    if ending.has_ended(warehouse, name):
        _await_supervisor(warehouse, name)
    if is_going_on(warehouse, name):
        raise HttpError(409, f'job "{name}" is being run', hint="Stop it first.")
    notices: list[str] = []
    with Session(settings.project.root, settings.project.warehouse, load=False, notice=notices.append) as session:
        session.drop(name)
    return ActionReply("; ".join([f'job "{name}" dropped, with its state and the rows that it wrote', *notices]))


def _take_savepoint(call: HttpCall) -> messages.SavepointReply:
    savepoint = take_savepoint(call.service.warehouse, call.path["job"], call.body.name).record
    return messages.SavepointReply(savepoint.name, savepoint.job, savepoint.version)


def _savepoints(call: HttpCall) -> messages.Savepoints:
    return call.service.overview.savepoints()


def _drop_savepoint(call: HttpCall) -> ActionReply:
    name = call.path["savepoint"]
    drop_savepoint(call.service.warehouse, name)
    return ActionReply(f'savepoint "{name}" dropped')


def _relations(call: HttpCall) -> messages.RelationList:
    return call.service.overview.relations()


def _lookup(call: HttpCall) -> messages.LookupReply:
    """Look up a key in this process, which is faster than in a separate one.

    That is safe: the server writes the statement, which takes the key's values as parameters and reads the rows of one key, so no
    expression of a client is computed.
    """
    version = call.parameter("version")
    key = call.parameters.get("key", ())
    lookup = call.service.lookups.find(call.path["job"], call.path["operator"], key, version)
    watermark = lookup.version.watermark
    return messages.LookupReply(
        version=lookup.version.version,
        watermark=None if watermark is None else event_time(watermark),
        columns=[messages.ColumnType(name, kind) for name, kind in lookup.types.items()],
        rows=[json_row(row) for row in lookup.rows],
    )


def _versions(call: HttpCall) -> messages.VersionList:
    since = call.parameter("since") or "0"
    if not since.isdecimal() or len(since) > _LONGEST:
        raise UsageError(f'"{since}" is no version', hint="Write its number.")
    return versions_of(call.service.warehouse, call.path["job"], call.parameter("state"), int(since))


def _query(call: HttpCall) -> HttpQuery:
    check_text(call.body.sql)
    return HttpQuery(call.body.sql, _limit(call.body.limit), call.body.text)


def _limit(limit: int) -> int:
    return min(max(limit, 0), _MOST_ROWS)


def _diff(call: HttpCall) -> HttpQuery:
    request: messages.DiffRequest = call.body
    sql = diff_sql(request.state, request.older, request.newer)
    return HttpQuery(sql, _limit(request.limit), request.text, is_made=True)


def _why(call: HttpCall) -> HttpQuery:
    request: messages.WhyRequest = call.body
    return HttpQuery(why_sql(request.state, request.key, request.version), _FINDINGS, is_made=True)


def _metrics(call: HttpCall) -> bytes:
    try:
        metrics = call.service.metrics
    except UsageError as error:
        # The request is not wrong.
        raise HttpError(501, error.message, hint=error.hint) from error
    return exposition(metrics)


ENDPOINTS: tuple[Endpoint, ...] = (
    CallEndpoint("GET", "/v1/health", None, "Whether the server answers", _health, messages.Health),
    CallEndpoint(
        "GET",
        "/v1/ready",
        None,
        "Whether the server supervises the jobs: 503 from a standby",
        _ready,
        messages.Health,
    ),
    CallEndpoint("GET", "/v1/jobs", Role.READ, "List the jobs of the warehouse", _jobs, messages.Jobs),
    ProcessEndpoint(
        "POST",
        "/v1/jobs",
        Role.SUBMIT,
        "Submit SQL: its jobs run under the server",
        submission_of,
        messages.SubmissionReply,
        body=messages.SubmitRequest,
        status=201,
    ),
    CallEndpoint("GET", "/v1/jobs/{job}", Role.READ, "Show a job", _job, messages.JobDetails),
    CallEndpoint(
        "GET",
        "/v1/jobs/{job}/batches",
        Role.READ,
        "Show the last batches of a job",
        _batches,
        messages.Batches,
        parameters=(UrlParameter("last", "how many (default: 100; at most 1,000)"),),
    ),
    CallEndpoint("DELETE", "/v1/jobs/{job}", Role.SUBMIT, "Delete a job, its state and its rows", _drop, ActionReply),
    CallEndpoint(
        "POST",
        "/v1/jobs/{job}/stop",
        Role.SUBMIT,
        "Stop a job after its batch",
        _stop,
        ActionReply,
        body=messages.StopRequest,
    ),
    CallEndpoint(
        "POST",
        "/v1/jobs/{job}/savepoints",
        Role.SUBMIT,
        "Take a savepoint of a job",
        _take_savepoint,
        messages.SavepointReply,
        body=messages.SavepointName,
        status=201,
    ),
    ProcessEndpoint(
        "POST",
        "/v1/jobs/{job}/upgrade-plan",
        Role.SUBMIT,
        "Show what becomes of a job's state with a changed query",
        upgrade_plan_of,
        messages.Plan,
        body=messages.PlanRequest,
    ),
    ProcessEndpoint(
        "POST",
        "/v1/plan",
        Role.SUBMIT,
        "Show the plan of SQL",
        plan_of,
        messages.Plan,
        body=messages.PlanRequest,
    ),
    ProcessEndpoint(
        "POST",
        "/v1/upgrade-plans",
        Role.SUBMIT,
        "Show what becomes of the states of the jobs of a script, before it is submitted",
        upgrade_plans_of,
        messages.Plans,
        body=messages.SubmitRequest,
    ),
    ProcessEndpoint(
        "POST",
        "/v1/jobs/{job}/batch-query",
        Role.SUBMIT,
        "Show the query of a job as one batch",
        batch_query_of,
        messages.Plan,
        body=messages.PlanRequest,
    ),
    ProcessEndpoint(
        "POST",
        "/v1/jobs/{job}/verify",
        Role.SUBMIT,
        "Compare what a job wrote with a batch over what it read",
        verification_of,
        messages.VerificationReply,
        body=messages.VerifyRequest,
    ),
    CallEndpoint("GET", "/v1/savepoints", Role.READ, "List the savepoints", _savepoints, messages.Savepoints),
    CallEndpoint(
        "DELETE", "/v1/savepoints/{savepoint}", Role.SUBMIT, "Delete a savepoint", _drop_savepoint, ActionReply
    ),
    CallEndpoint("GET", "/v1/relations", Role.READ, "List what a query can read", _relations, messages.RelationList),
    QueryEndpoint(
        "POST",
        "/v1/query",
        Role.READ,
        "Query state, tables and sqlstream.*: as JSON, or as an Arrow stream",
        _query,
        body=messages.QueryRequest,
    ),
    CallEndpoint(
        "GET",
        "/v1/jobs/{job}/versions",
        Role.READ,
        "List the versions of a job that can be queried",
        _versions,
        messages.VersionList,
        parameters=(
            UrlParameter("state", "what an operator keeps: those in which it can be read, with its rows"),
            UrlParameter("since", "the first version to list (default: the oldest)"),
        ),
    ),
    QueryEndpoint(
        "POST",
        "/v1/diff",
        Role.READ,
        "Show the rows of a state that differ between two versions, as sqlstream.diff does",
        _diff,
        body=messages.DiffRequest,
    ),
    QueryEndpoint(
        "POST",
        "/v1/why",
        Role.READ,
        "Explain what a state holds for a key, as sqlstream.why does",
        _why,
        body=messages.WhyRequest,
    ),
    EventEndpoint(
        "GET",
        "/v1/tables/{table}/changes",
        Role.READ,
        "Listen to the changes of a table of the warehouse, as server-sent events",
        lambda call: call.service.tails.listen(call.path["table"]),
    ),
    CallEndpoint(
        "GET",
        "/v1/state/{job}/{operator}",
        Role.READ,
        "Look up the rows that a state has for a key",
        _lookup,
        messages.LookupReply,
        parameters=(
            UrlParameter("key", "a value for each key column, in their order", required=True, repeated=True),
            UrlParameter("version", "an older version: a number, or a time in UTC"),
        ),
    ),
    TextEndpoint("GET", "/metrics", Role.READ, "Metrics of all jobs for Prometheus", _metrics),
    EventEndpoint(
        "GET",
        "/v1/events",
        Role.READ,
        "Listen to batches, watermarks and what jobs become, as server-sent events",
        lambda call: call.service.events.listen(call.parameter("job")),
        parameters=(UrlParameter("job", "the job to listen to (default: all)"),),
    ),
)


def check_parameters(endpoint: Endpoint, parameters: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError for parameters that an endpoint does not have, or that are missing."""
    declarations = {parameter.name: parameter for parameter in endpoint.parameters}
    for name in parameters:
        if name not in declarations:
            raise UsageError(f'there is no parameter "{name}" here', hint=missing("parameter", name, declarations))
    for parameter in endpoint.parameters:
        if parameter.required and parameter.name not in parameters:
            raise UsageError(f'the parameter "{parameter.name}" is needed: {parameter.description}')
