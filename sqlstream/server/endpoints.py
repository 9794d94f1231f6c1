"""The endpoints of the server: a list from which its routes and their OpenAPI description are made."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from sqlstream.distribution import VERSION
from sqlstream.errors import UsageError, missing
from sqlstream.jobs import ending
from sqlstream.jobs.savepoints import drop_savepoint, take_savepoint
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
from sqlstream.server.http_answers import ARROW, JSON, Asked
from sqlstream.server.overview import Overview
from sqlstream.server.placeholders import check_text
from sqlstream.server.problems import HttpError
from sqlstream.server.queries import Queries
from sqlstream.server.settings import ServerSettings
from sqlstream.server.states import versions_of
from sqlstream.server.supervisor import Supervisor
from sqlstream.server.table_tails import TableTails
from sqlstream.server.turns import RequestTurns
from sqlstream.session.row_values import json_row
from sqlstream.session.session import Session
from sqlstream.session.state_tools import diff_sql, why_sql
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import effective_status, request_stop
from sqlstream.warehouse.submissions import is_going_on

EVENT_STREAM = "text/event-stream"
PLAIN = "text/plain"
# The supervising server may take so many seconds to notice that a job was stopped.
_NOTICED_SECONDS = 20.0
# Far more rows than sqlstream.why has for a key.
_FINDINGS = 100_000
# More rows than any result has; DuckDB takes no larger number.
_MOST_ROWS = 1 << 62
# The most digits of a version.
_LONGEST = 18


@dataclass(frozen=True)
class Service:
    """The objects that endpoints use."""

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
        given = self.parameters.get(name, ())
        if len(given) > 1:
            raise UsageError(f'the parameter "{name}" is there {len(given)} times')
        return given[0] if given else None


@dataclass(frozen=True, slots=True)
class UrlParameter:
    """A parameter of the query of a URL."""

    name: str
    description: str
    required: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method of an address. One of these answers it: `call` and `text` in a thread, the state query that `query` returns, the
    computation that `computation` returns, in a process, or the events that `listen` yields.

    Without a `role` no token is needed.
    """

    method: str
    path: str
    role: Role | None
    summary: str
    call: Callable[[HttpCall], msgspec.Struct] | None = None
    body: type[messages.Request] | None = None
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    streams: tuple[str, ...] = ()
    parameters: tuple[UrlParameter, ...] = field(default=())
    text: Callable[[HttpCall], bytes] | None = None
    query: Callable[[HttpCall], Asked] | None = None
    computation: Callable[[HttpCall], Computation] | None = None
    listen: Callable[[HttpCall], AsyncIterator[bytes]] | None = None


def _health(call: HttpCall) -> messages.Health:
    return _as_health(call.service)


def _ready(call: HttpCall) -> messages.Health:
    found = _as_health(call.service)
    if not found.active:
        raise HttpError(503, "this server waits for its turn: another one supervises the jobs")
    return found


def _as_health(service: Service) -> messages.Health:
    active = service.supervisor.is_active
    return messages.Health("active" if active else "standby", active, VERSION)


def _jobs(call: HttpCall) -> messages.Jobs:
    return call.service.overview.jobs()


def _job(call: HttpCall) -> messages.JobDetails:
    return call.service.overview.job(call.path["job"])


def _batches(call: HttpCall) -> messages.Batches:
    return batches(call.service.warehouse, call.path["job"], call.parameter("last"))


def _stop(call: HttpCall) -> messages.Done:
    """Stop a job, and wait for its end; a job whose process waits for its restart is not started again."""
    service, name, asked = call.service, call.path["job"], call.body
    warehouse = service.warehouse
    paths = ending.existing(warehouse, name)
    status = effective_status(warehouse.fs, paths)
    if asked.savepoint and asked.savepoint.lower() in warehouse.savepoints():
        raise UsageError(f'savepoint "{asked.savepoint}" exists already', hint="Give it another name.")
    if (status is None or not status.is_active) and not asked.drain and is_going_on(warehouse, name):
        request_stop(warehouse.fs, paths)
    else:
        ending.stop(warehouse, name, drain=asked.drain)
    service.supervisor.look()
    _await_supervisor(warehouse, name)
    message = f'job "{name}" {"drained: all its windows are closed" if asked.drain else "stopped"}'
    if asked.savepoint is not None:
        taken = take_savepoint(warehouse, name, asked.savepoint or None).record
        message += f'; savepoint "{taken.name}" at version {taken.version}'
    return messages.Done(message)


def _await_supervisor(warehouse: Warehouse, name: str) -> None:
    """Wait until the supervising server, this or another one, has noticed that a job was stopped; there may be none."""
    deadline = time.monotonic() + _NOTICED_SECONDS
    while is_going_on(warehouse, name) and time.monotonic() < deadline:
        time.sleep(ending.POLL_SECONDS)


def _drop(call: HttpCall) -> messages.Done:
    settings, name, warehouse = call.service.settings, call.path["job"], call.service.warehouse
    if ending.has_ended(warehouse, name):
        _await_supervisor(warehouse, name)
    if is_going_on(warehouse, name):
        raise HttpError(409, f'job "{name}" is being run', hint="Stop it first.")
    notices: list[str] = []
    with Session(settings.project.root, settings.project.warehouse, load=False, notice=notices.append) as session:
        session.drop(name)
    return messages.Done("; ".join([f'job "{name}" dropped, with its state and the rows that it wrote', *notices]))


def _take_savepoint(call: HttpCall) -> messages.SavepointTaken:
    taken = take_savepoint(call.service.warehouse, call.path["job"], call.body.name).record
    return messages.SavepointTaken(taken.name, taken.job, taken.version)


def _savepoints(call: HttpCall) -> messages.Savepoints:
    return call.service.overview.savepoints()


def _drop_savepoint(call: HttpCall) -> messages.Done:
    name = call.path["savepoint"]
    drop_savepoint(call.service.warehouse, name)
    return messages.Done(f'savepoint "{name}" dropped')


def _relations(call: HttpCall) -> messages.RelationList:
    return call.service.overview.relations()


def _lookup(call: HttpCall) -> messages.Looked:
    """Look up a key in this process, which is faster than in a separate one.

    The statement is made here, takes the key's values as parameters, and reads the rows of one key: no expression of a client is
    computed.
    """
    version = call.parameter("version")
    key = call.parameters.get("key", ())
    found = call.service.lookups.find(call.path["job"], call.path["operator"], key, version)
    watermark = found.version.watermark
    return messages.Looked(
        version=found.version.version,
        watermark=None if watermark is None else event_time(watermark),
        columns=[messages.ColumnType(name, kind) for name, kind in found.types.items()],
        rows=[json_row(row) for row in found.rows],
    )


def _versions(call: HttpCall) -> messages.VersionList:
    since = call.parameter("since") or "0"
    if not since.isdecimal() or len(since) > _LONGEST:
        raise UsageError(f'"{since}" is no version', hint="Write its number.")
    return versions_of(call.service.warehouse, call.path["job"], call.parameter("state"), int(since))


def _query(call: HttpCall) -> Asked:
    check_text(call.body.sql)
    return Asked(call.body.sql, _limit(call.body.limit), call.body.text)


def _limit(given: int) -> int:
    return min(max(given, 0), _MOST_ROWS)


def _diff(call: HttpCall) -> Asked:
    asked: messages.DiffRequest = call.body
    sql = diff_sql(asked.state, asked.older, asked.newer)
    return Asked(sql, _limit(asked.limit), asked.text, is_made=True)


def _why(call: HttpCall) -> Asked:
    asked: messages.WhyRequest = call.body
    return Asked(why_sql(asked.state, asked.key, asked.version), _FINDINGS, is_made=True)


def _metrics(call: HttpCall) -> bytes:
    try:
        found = call.service.metrics
    except UsageError as error:
        # The request is not wrong.
        raise HttpError(501, error.message, hint=error.hint) from error
    return exposition(found)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/v1/health", None, "Whether the server answers", _health, answer=messages.Health),
    Endpoint(
        "GET",
        "/v1/ready",
        None,
        "Whether the server supervises the jobs: 503 from a standby",
        _ready,
        answer=messages.Health,
    ),
    Endpoint("GET", "/v1/jobs", Role.READ, "List the jobs of the warehouse", _jobs, answer=messages.Jobs),
    Endpoint(
        "POST",
        "/v1/jobs",
        Role.SUBMIT,
        "Submit SQL: its jobs run under the server",
        computation=submission_of,
        body=messages.SubmitRequest,
        answer=messages.Submitted,
        status=201,
    ),
    Endpoint("GET", "/v1/jobs/{job}", Role.READ, "Show a job", _job, answer=messages.JobDetails),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/batches",
        Role.READ,
        "Show the last batches of a job",
        _batches,
        answer=messages.Batches,
        parameters=(UrlParameter("last", "how many (default: 100; at most 1,000)"),),
    ),
    Endpoint(
        "DELETE", "/v1/jobs/{job}", Role.SUBMIT, "Delete a job, its state and its rows", _drop, answer=messages.Done
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/stop",
        Role.SUBMIT,
        "Stop a job after its batch",
        _stop,
        messages.StopRequest,
        messages.Done,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/savepoints",
        Role.SUBMIT,
        "Take a savepoint of a job",
        _take_savepoint,
        messages.SavepointName,
        messages.SavepointTaken,
        status=201,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/upgrade-plan",
        Role.SUBMIT,
        "Show what becomes of a job's state with a changed query",
        computation=upgrade_plan_of,
        body=messages.PlanRequest,
        answer=messages.Plan,
    ),
    Endpoint(
        "POST",
        "/v1/plan",
        Role.SUBMIT,
        "Show the plan of SQL",
        computation=plan_of,
        body=messages.PlanRequest,
        answer=messages.Plan,
    ),
    Endpoint(
        "POST",
        "/v1/upgrade-plans",
        Role.SUBMIT,
        "Show what becomes of the states of the jobs of a script, before it is submitted",
        computation=upgrade_plans_of,
        body=messages.SubmitRequest,
        answer=messages.Plans,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/batch-query",
        Role.SUBMIT,
        "Show the query of a job as one batch",
        computation=batch_query_of,
        body=messages.PlanRequest,
        answer=messages.Plan,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/verify",
        Role.SUBMIT,
        "Compare what a job wrote with a batch over what it read",
        computation=verification_of,
        body=messages.VerifyRequest,
        answer=messages.Verified,
    ),
    Endpoint("GET", "/v1/savepoints", Role.READ, "List the savepoints", _savepoints, answer=messages.Savepoints),
    Endpoint(
        "DELETE", "/v1/savepoints/{savepoint}", Role.SUBMIT, "Delete a savepoint", _drop_savepoint, answer=messages.Done
    ),
    Endpoint("GET", "/v1/relations", Role.READ, "List what a query can read", _relations, answer=messages.RelationList),
    Endpoint(
        "POST",
        "/v1/query",
        Role.READ,
        "Query state, tables and sqlstream.*: as JSON, or as an Arrow stream",
        body=messages.QueryRequest,
        answer=messages.QueryRows,
        streams=(JSON, ARROW),
        query=_query,
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/versions",
        Role.READ,
        "List the versions of a job that can be queried",
        _versions,
        answer=messages.VersionList,
        parameters=(
            UrlParameter("state", "what an operator keeps: those in which it can be read, with its rows"),
            UrlParameter("since", "the first version to list (default: the oldest)"),
        ),
    ),
    Endpoint(
        "POST",
        "/v1/diff",
        Role.READ,
        "Show the rows of a state that differ between two versions, as sqlstream.diff does",
        body=messages.DiffRequest,
        answer=messages.QueryRows,
        streams=(JSON, ARROW),
        query=_diff,
    ),
    Endpoint(
        "POST",
        "/v1/why",
        Role.READ,
        "Explain what a state holds for a key, as sqlstream.why does",
        body=messages.WhyRequest,
        answer=messages.QueryRows,
        streams=(JSON, ARROW),
        query=_why,
    ),
    Endpoint(
        "GET",
        "/v1/tables/{table}/changes",
        Role.READ,
        "Listen to the changes of a table of the warehouse, as server-sent events",
        streams=(EVENT_STREAM,),
        listen=lambda call: call.service.tails.listen(call.path["table"]),
    ),
    Endpoint(
        "GET",
        "/v1/state/{job}/{operator}",
        Role.READ,
        "Look up the rows that a state has for a key",
        _lookup,
        answer=messages.Looked,
        parameters=(
            UrlParameter("key", "a value for each key column, in their order", required=True, repeated=True),
            UrlParameter("version", "an older version: a number, or a time in UTC"),
        ),
    ),
    Endpoint("GET", "/metrics", Role.READ, "Metrics of all jobs for Prometheus", streams=(PLAIN,), text=_metrics),
    Endpoint(
        "GET",
        "/v1/events",
        Role.READ,
        "Listen to batches, watermarks and what jobs become, as server-sent events",
        streams=(EVENT_STREAM,),
        listen=lambda call: call.service.events.listen(call.parameter("job")),
        parameters=(UrlParameter("job", "the job to listen to (default: all)"),),
    ),
)


def check_parameters(endpoint: Endpoint, given: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError for parameters that an endpoint does not have, or that are missing."""
    known = {parameter.name: parameter for parameter in endpoint.parameters}
    for name in given:
        if name not in known:
            raise UsageError(f'there is no parameter "{name}" here', hint=missing("parameter", name, known))
    for parameter in endpoint.parameters:
        if parameter.required and parameter.name not in given:
            raise UsageError(f'the parameter "{parameter.name}" is needed: {parameter.description}')
