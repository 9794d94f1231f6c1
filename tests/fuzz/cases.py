"""What every text and every query must do, and what is told where one does not."""

from __future__ import annotations

import resource
import traceback
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from random import Random
from typing import Protocol

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText, SqlStreamError
from tests.fuzz.failures import Failure
from tests.fuzz.jobs import job
from tests.fuzz.texts import mutated

# For one query that runs, so many texts are compiled.
TEXTS = 5
# Bytes that a process may have used after a case: it begins with some 200 million.
MEMORY = 2 << 30
_PROJECT = Path(__file__).parents[2]


class Case(Protocol):
    """Something to try, within so many seconds; as text, it is a program that tries it again."""

    @property
    def seconds(self) -> int: ...

    def fails(self) -> Failure | None: ...


def case(seed: int, number: int) -> Case:
    """Make a case by chance, always the same one."""
    random = Random(f"{seed}:{number}")
    if number % (TEXTS + 1):
        return Text(*mutated(random))
    return job(random)


def tried(case: Case) -> Failure | None:
    """Try a case; nothing is raised."""
    try:
        failure = case.fails()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        [*_, frame] = [f for f in frames if "sqlstream" in f.filename] or frames
        place = f"{frame.filename.removeprefix(f'{_PROJECT}/')}:{frame.lineno}"
        return Failure(f"{type(error).__name__} {place}", f"{type(error).__name__} in {place}: {error}")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if failure is None and used > MEMORY:
        return Failure("memory", f"took {used >> 20} MB")
    return failure


@dataclass(frozen=True, slots=True)
class Text:
    """A text, and the statements before it: it is right, or wrong in a way that we know."""

    before: str
    text: str
    seconds = 20

    def fails(self) -> Failure | None:
        compiler = Compiler()
        try:
            for sql in self.before, self.text:
                try:
                    compiler.scripts([SourceText("fuzz", sql)])
                except SqlStreamError as error:
                    error.render()
        finally:
            compiler.close()
        return None

    def __str__(self) -> str:
        return f"from tests.fuzz.cases import Text\n\nprint({pformat(self, width=130)}.fails())"
