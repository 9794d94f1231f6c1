"""What every text and every query must do, and what is told where one does not."""

from __future__ import annotations

import resource
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.testing import Stream
from tests.fuzz.batch import batch_answer, counted
from tests.fuzz.queries import Queries
from tests.fuzz.tables import TABLES, Fed, NoAnswer, Row, fed, pieces, reads
from tests.fuzz.texts import mutated

# For one query that runs, so many texts are compiled.
TEXTS = 5
# Bytes that a process may have used after a case: it begins with some 200 million.
MEMORY = 2 << 30
_PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: a word to tell failures apart, and what a person reads."""

    kind: str
    message: str


class Case(Protocol):
    """Something to try, within so many seconds; as text, it is what a person needs to make it again."""

    @property
    def seconds(self) -> int: ...

    def fails(self) -> Failure | None: ...


def case(seed: int, number: int) -> Case:
    """Make a case by chance, always the same one."""
    random = Random(f"{seed}:{number}")
    if number % (TEXTS + 1):
        return Text(*mutated(random))
    return Answer(Queries(random).query().sql, fed(random), random.randrange(1 << 30))


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
        return f"-- before:\n{self.before}\n-- text:\n{self.text}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A query over rows: in pieces with a restart in between, and at once, its answer is DuckDB's."""

    sql: str
    fed: Fed
    cuts: int
    seconds = 120

    def fails(self) -> Failure | None:
        try:
            wanted, columns = batch_answer(self.sql, self.fed)
        except NoAnswer:
            return None
        ways = {"in pieces": list(pieces(self.fed, Random(self.cuts))), "at once": [self.fed]}
        for how, given in ways.items():
            # What is right in pieces is seldom wrong at once.
            if how == "at once" and self.cuts % 3:
                continue
            found = streamed(self.sql, columns, given)
            if found is not None and found != wanted:
                more, less = found - wanted, wanted - found
                return Failure("answer", f"{how}: too much {dict(more)}, missing {dict(less)}")
        return None

    def __str__(self) -> str:
        return f"{self.sql}\n" + "\n".join(f"-- {table}: {rows}" for table, rows in self.fed.items() if rows)


def streamed(sql: str, columns: str, batches: list[Fed]) -> Counter[Row] | None:
    """Return what a stream says that is restarted in the middle; None where it refuses the query."""
    try:
        stream = Stream(f"{TABLES} CREATE TABLE out ({columns}); INSERT INTO out {sql}", parallelism=2)
    except SqlStreamError:
        return None
    with stream:
        for number, batch in enumerate(batches):
            if number and number == len(batches) // 2:
                stream.restart()
            stream.batches({table: rows for table, rows in batch.items() if rows and reads(sql, table)})
        stream.finish()
        return counted(stream.rows("out"))
