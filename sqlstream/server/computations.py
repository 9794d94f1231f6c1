"""What is computed for clients beside queries, in processes that can be killed: SQL is compiled, jobs are verified."""

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

# What errors call what is computed.
_COMPILATION, _VERIFICATION = "compilation", "verification"
# Who verifies a job may have so many times the memory of a query.
_VERIFY_MEMORY = 4


@dataclass(frozen=True, slots=True)
class Computation:
    """What is computed in a process that can be killed, and what the server makes of its value: the answer."""

    turns: RequestTurns
    call: ComputationCall
    answer: Callable[[Any], msgspec.Struct]


def compilations_of(limits: Limits) -> TurnLimits:
    """Return how many scripts are compiled at a time, and for how long; others wait for their turn."""
    running, seconds = "scripts are being compiled", limits.compile_seconds
    return TurnLimits(limits.queries, seconds, _COMPILATION, running, patience=seconds)


def verifications_of(limits: Limits) -> TurnLimits:
    """Return how many jobs are verified at a time, and for how long; others wait for their turn."""
    running, patience = "jobs are being verified", limits.compile_seconds
    return TurnLimits(limits.verifications, limits.verify_seconds, _VERIFICATION, running, patience)


def _arguments(call: HttpCall) -> tuple[ServerSettings, Role, Any]:
    """Return what SQL is compiled with: whoever compiles it needs no tokens."""
    return replace(call.service.settings, tokens=None), call.role, call.body


def submission_of(call: HttpCall) -> Computation:
    """Return what compiles a script, and keeps it for the supervisor."""

    def stored(script: CheckedScript) -> messages.Submitted:
        found = keep(call.service.warehouse, script)
        call.service.supervisor.look()
        return found

    return Computation(call.service.compilations, ComputationCall(_COMPILATION, prepare, _arguments(call)), stored)


def _planned(call: HttpCall, job: str | None, *, of_job: bool = False) -> Computation:
    asked = ComputationCall(_COMPILATION, planned, (*_arguments(call), job, of_job))
    return Computation(call.service.compilations, asked, messages.Plan)


def plan_of(call: HttpCall) -> Computation:
    """Return what plans SQL."""
    return _planned(call, None)


def upgrade_plan_of(call: HttpCall) -> Computation:
    """Return what tells what becomes of the state of a job."""
    return _planned(call, call.path["job"])


def batch_query_of(call: HttpCall) -> Computation:
    """Return what shows the query of a job as one batch."""
    return _planned(call, call.path["job"], of_job=True)


def upgrade_plans_of(call: HttpCall) -> Computation:
    """Return what tells what becomes of the states of the jobs of a script."""
    return Computation(
        call.service.compilations, ComputationCall(_COMPILATION, upgrade_plans, _arguments(call)), messages.Plans
    )


def verification_of(call: HttpCall) -> Computation:
    """Return what verifies a job."""
    # It reads again what a job has read.
    more = (_VERIFY_MEMORY - 1) * (call.service.settings.limits.query.memory or 0)
    asked = ComputationCall(_VERIFICATION, verified, (*_arguments(call), call.path["job"]), more)
    return Computation(call.service.verifications, asked, lambda found: found)
