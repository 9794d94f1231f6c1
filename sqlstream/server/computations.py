"""Computations for clients that are no queries: compiling SQL and verifying jobs, in processes that can be killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from sqlstream.server import messages
from sqlstream.server.access import Role
from sqlstream.server.query_processes.protocol import ComputationCall
from sqlstream.server.settings import Limits, ServerSettings
from sqlstream.server.submitting import CheckedScript, keep, planned, prepare, upgrade_plans, verified
from sqlstream.server.turns import RequestTurns, TurnLimits

if TYPE_CHECKING:
    from sqlstream.server.endpoints import HttpCall

# The nouns for them in errors.
_COMPILATION, _VERIFICATION = "compilation", "verification"
# A verification may use this many times the memory of a query.
_VERIFY_MEMORY = 4


@dataclass(frozen=True, slots=True)
class Computation:
    """A call that runs in a process that can be killed. The server then makes the HTTP answer with `answer` from its result."""

    turns: RequestTurns
    call: ComputationCall
    answer: Callable[[Any], msgspec.Struct]


def compilations_of(limits: Limits) -> TurnLimits:
    """Return the limits of compilations: how many run at a time, and for how long. More wait for their turn."""
    running, seconds = "scripts are being compiled", limits.compile_seconds
    return TurnLimits(limits.queries, seconds, _COMPILATION, running, patience=seconds)


def verifications_of(limits: Limits) -> TurnLimits:
    """Return the limits of verifications: how many run at a time, and for how long. More wait for their turn."""
    running, patience = "jobs are being verified", limits.compile_seconds
    return TurnLimits(limits.verifications, limits.verify_seconds, _VERIFICATION, running, patience)


def _arguments(call: HttpCall) -> tuple[ServerSettings, Role, Any]:
    """Return the arguments of a compilation: the settings without tokens, the client's role, and the request."""
    return replace(call.service.settings, tokens=None), call.role, call.body


def submission_of(call: HttpCall) -> Computation:
    """Return the computation that compiles a script; the server then stores it for the supervisor."""

    def stored(script: CheckedScript) -> messages.SubmissionReply:
        answer = keep(call.service.warehouse, script)
        call.service.supervisor.look()
        return answer

    return Computation(call.service.compilations, ComputationCall(_COMPILATION, prepare, _arguments(call)), stored)


def _planned(call: HttpCall, job: str | None, *, of_job: bool = False) -> Computation:
    computation_call = ComputationCall(_COMPILATION, planned, (*_arguments(call), job, of_job))
    return Computation(call.service.compilations, computation_call, messages.Plan)


def plan_of(call: HttpCall) -> Computation:
    """Return the computation that plans SQL."""
    return _planned(call, None)


def upgrade_plan_of(call: HttpCall) -> Computation:
    """Return the computation that plans the upgrade of a job."""
    return _planned(call, call.path["job"])


def batch_query_of(call: HttpCall) -> Computation:
    """Return the computation that shows the query of a job as one batch."""
    return _planned(call, call.path["job"], of_job=True)


def upgrade_plans_of(call: HttpCall) -> Computation:
    """Return the computation that plans the upgrades of the jobs of a script."""
    return Computation(
        call.service.compilations, ComputationCall(_COMPILATION, upgrade_plans, _arguments(call)), messages.Plans
    )


def verification_of(call: HttpCall) -> Computation:
    """Return the computation that verifies a job."""
    # It reads all input of the job again.
    more = (_VERIFY_MEMORY - 1) * (call.service.settings.limits.query.memory or 0)
    computation_call = ComputationCall(_VERIFICATION, verified, (*_arguments(call), call.path["job"]), more)
    return Computation(call.service.verifications, computation_call, lambda answer: answer)
