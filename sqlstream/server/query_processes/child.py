"""The process that runs the requests of its server, one after the other."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import pyarrow as pa

from sqlstream.errors import QueryError, SqlStreamError
from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits
from sqlstream.secrets import masked
from sqlstream.server.query_processes.memory import add_memory, bound_memory, has_grown, out_of_memory
from sqlstream.server.query_processes.priority import ProcessPriority, SharedSpending
from sqlstream.server.query_processes.protocol import ComputationCall, Condition, NextPart, ProcessAnswer, ProcessReply
from sqlstream.server.query_processes.worker import Worker

_PR_SET_PDEATHSIG = 1


def run(descriptor: int, parent: int, project: Project, limits: QueryLimits, together: SharedSpending) -> NoReturn:
    """Answer requests from the socket `descriptor` until it is closed, then end this process; also if `parent` ends."""
    try:
        # A session of its own can have a priority of its own.
        os.setsid()
        _die_with(parent)
        _Child(Connection(descriptor), project, limits, together).serve()
    except (EOFError, OSError):
        # The server has no more requests, or has ended.
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Without the exit handlers of the process that this one was forked from.
        os._exit(0)


def _die_with(parent: int) -> None:
    """Let Linux kill this process when its parent ends: inside of a function it would not notice."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


class _Child:
    """Answers requests, one after the other."""

    def __init__(self, server: Connection, project: Project, limits: QueryLimits, together: SharedSpending):
        self._server, self._limits = server, limits
        self._courtesy = ProcessPriority(together)
        with self._courtesy.working():
            self._worker = Worker(project, limits)
        self._answer: ProcessAnswer | None = None
        self._is_spent = False
        self._resident = bound_memory(limits)

    def serve(self) -> None:
        """Report that this process is ready, then answer requests. Raises EOFError when the server closes the connection."""
        self._send(ProcessReply())
        while True:
            request = self._server.recv()
            with self._courtesy.working():
                reply = self._reply(request)
            self._send(reply)

    def _send(self, reply: ProcessReply) -> None:
        try:
            self._server.send(reply)
        except (AttributeError, TypeError, ValueError) as error:
            # The reply cannot be pickled.
            self._server.send(ProcessReply(error=QueryError(str(reply.error or error)), condition=Condition.SPENT))

    def _reply(self, request: Any) -> ProcessReply:
        try:
            if isinstance(request, ComputationCall) and request.more_memory:
                self._is_spent = True
                add_memory(request.more_memory)
            if isinstance(request, NextPart):
                assert self._answer is not None
                value = self._answer.part(*request.arguments)
            else:
                self._answer = request.open(self._worker)
                value = self._answer.head
            if not self._answer.is_whole:
                return ProcessReply(value, is_last=False)
            self._close()
            return ProcessReply(value, condition=self._condition())
        except Exception as error:
            failed = self._sent(error, request)
            # Its traceback refers to what was computed.
            del error
            self._close()
            return ProcessReply(error=failed, condition=self._condition())

    def _sent(self, error: Exception, request: Any) -> Exception:
        """Return an error as it is sent to the server: without its causes, and without secrets that this process knows."""
        if isinstance(error, MemoryError | pa.ArrowMemoryError):
            self._is_spent = True
            memory = self._limits.memory
            if not isinstance(request, ComputationCall):
                return out_of_memory(memory)
            return out_of_memory(None if memory is None else memory + request.more_memory, request.noun)
        if isinstance(error, SqlStreamError):
            error.message = masked(error.message)
            error.detail, error.hint = (text and masked(text) for text in (error.detail, error.hint))
            if error.span is not None:
                error.span = replace(error.span, source=error.span.source.without_secrets())
        elif not getattr(error, "is_sent", False):
            self._is_spent = True
            error.args = tuple(masked(one) if isinstance(one, str) else one for one in error.args)
            error.add_note(masked("".join(traceback.format_exception(error))))
        return error.with_traceback(None)

    def _close(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            with contextlib.suppress(Exception):
                answer.close()

    def _condition(self) -> Condition:
        if self._is_spent or has_grown(self._resident):
            return Condition.SPENT
        return Condition.GIVES_WAY if self._courtesy.gives_way else Condition.FINE
