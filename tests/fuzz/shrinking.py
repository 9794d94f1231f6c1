"""What fails is made short, for a person to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.fuzz.cases import Case, Text
from tests.fuzz.jobs import Job
from tests.fuzz.texts import tokens

# What hangs takes long to try again.
SECONDS, TRIES = 60, 150
T = TypeVar("T")


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a smaller case that still fails."""
    end = time.monotonic() + SECONDS
    match case:
        case Text(before, text):
            return _shorter(case, tokens(text), lambda parts: Text(before, "".join(parts)), fails, end)
        case Job():
            return _shorter_job(case, fails, end)
    return case


def _shorter_job(case: Job, fails: Callable[[Case], bool], end: float) -> Job:
    case = _shorter(case, case.queries, lambda some: replace(case, queries=tuple(some)), fails, end)
    for table in case.fed:
        case = _with_fewer_rows(case, table, fails, end)
    for i, sql in enumerate(case.queries):
        case = _with_shorter_query(case, i, sql, fails, end)
    return case


def _with_shorter_query(case: Job, at: int, sql: str, fails: Callable[[Case], bool], end: float) -> Job:
    def made(parts: Sequence[str]) -> Job:
        return replace(case, queries=(*case.queries[:at], "".join(parts), *case.queries[at + 1 :]))

    return _shorter(case, tokens(sql), made, fails, end)


def _with_fewer_rows(case: Job, table: str, fails: Callable[[Case], bool], end: float) -> Job:
    return _shorter(case, case.fed[table], lambda rows: replace(case, fed={**case.fed, table: list(rows)}), fails, end)


C = TypeVar("C", bound=Case)


def _shorter(
    case: C, parts: Sequence[T], made: Callable[[Sequence[T]], C], fails: Callable[[Case], bool], end: float
) -> C:
    short = shortest(parts, lambda some: time.monotonic() < end and fails(made(some)))
    return made(short) if len(short) < len(parts) else case


def shortest(parts: Sequence[T], fails: Callable[[Sequence[T]], bool], most: int = TRIES) -> Sequence[T]:
    """Return fewer parts that still fail, taking away ever smaller pieces."""
    size, tries = max(1, len(parts) // 2), 0
    while tries < most:
        at, before = 0, len(parts)
        while at < len(parts) and tries < most:
            rest = [*parts[:at], *parts[at + size :]]
            tries += 1
            if fails(rest):
                parts = rest
            else:
                at += size
        if size == 1 and len(parts) == before:
            break
        size = max(1, size // 2)
    return parts
