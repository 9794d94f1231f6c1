"""What every text and every query must do, and what is told where one does not."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from types import FrameType
from typing import TypeVar

import duckdb

from sqlstream.compiler import Compiler
from sqlstream.errors import Source, SqlStreamError
from sqlstream.testing import Stream
from tests.fuzz.queries import COLUMNS, TABLES, Queries, batch_sql, rows
from tests.fuzz.texts import mutated, tokens

# A text must be compiled within so many seconds, a query must run.
COMPILES, RUNS = 20, 120
T = TypeVar("T")
Fed = dict[str, list[tuple[object, ...]]]


class Hang(BaseException):
    """Something took too long; nobody who catches errors may catch it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: a word to tell failures apart, and what a person reads."""

    kind: str
    message: str


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise Hang when what is inside takes longer."""

    def rung(signal: int, frame: FrameType | None) -> None:
        raise Hang(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, rung)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- texts


def compiled(before: str, text: str) -> Failure | None:
    """Compile a text: it is right, or wrong in a way that we know."""
    compiler = Compiler()
    try:
        with limit(COMPILES):
            for sql in before, text:
                try:
                    compiler.scripts([Source("fuzz", sql)])
                except SqlStreamError as error:
                    error.render()
    except (Hang, Exception) as error:
        return Failure(type(error).__name__, f"{type(error).__name__}: {error}")
    finally:
        compiler.close()
    return None


def text_case(random: Random) -> tuple[Failure, str] | None:
    """Compile a text made by chance; return what goes wrong, and a short text that makes it."""
    before, text = mutated(random)
    failure = compiled(before, text)
    if failure is None:
        return None

    def fails(parts: Sequence[str]) -> bool:
        found = compiled(before, "".join(parts))
        return found is not None and found.kind == failure.kind

    return failure, f"-- before:\n{before}\n-- text:\n{''.join(shortest(tokens(text), fails))}"


# -- answers


def batch_answer(sql: str, fed: Fed) -> tuple[Counter[tuple[object, ...]], str] | None:
    """Return what DuckDB says over all rows at once, with the types of its columns; None where it says nothing."""
    with duckdb.connect(config={"threads": 1}) as con:
        for table, columns in COLUMNS.items():
            con.execute(f"CREATE TABLE {table} ({columns})")
            if fed[table]:
                places = ", ".join("?" for _ in fed[table][0])
                con.executemany(f"INSERT INTO {table} VALUES ({places})", fed[table])
        try:
            query = batch_sql(sql)
            described = con.execute(f"DESCRIBE {query}").fetchall()
            found = Counter(map(_plain, con.execute(query).fetchall()))
        except duckdb.Error:
            return None
    columns = ", ".join(f"c{i} {type}" for i, (_, type, *_) in enumerate(described))
    return found, columns


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(float(f"{v:.9g}") if isinstance(v, float) else str(v) if isinstance(v, list) else v for v in row)


def streamed(sql: str, columns: str, fed: Fed, cuts: Random | None) -> Counter[tuple[object, ...]] | None:
    """Return what a stream says, None where it refuses the query; with `cuts`, in batches and with a restart in between."""
    try:
        stream = Stream(f"{TABLES} CREATE TABLE out ({columns}); INSERT INTO out {sql}", parallelism=2)
    except SqlStreamError:
        return None
    with stream:
        pieces = [fed] if cuts is None else _pieces(fed, cuts)
        for number, piece in enumerate(pieces):
            if number and number == len(pieces) // 2:
                stream.restart()
            stream.batches({table: given for table, given in piece.items() if given and _reads(sql, table)})
        stream.finish()
        return Counter(map(_plain, stream.rows("out")))


def _reads(sql: str, table: str) -> bool:
    return re.search(rf"\b{table}\b", sql) is not None


def _pieces(fed: Fed, cuts: Random) -> list[Fed]:
    pieces: list[Fed] = [{table: [] for table in fed} for _ in range(cuts.choice((2, 3, 4)))]
    for table, given in fed.items():
        for row in cuts.sample(given, len(given)):
            cuts.choice(pieces)[table].append(row)
    return pieces


def answered(sql: str, fed: Fed, seed: int) -> Failure | None:
    """Run a query at once and in pieces: both answers are DuckDB's."""
    try:
        with limit(RUNS):
            wanted = batch_answer(sql, fed)
            if wanted is None:
                return None
            for cuts in None, Random(seed):
                found = streamed(sql, wanted[1], fed, cuts)
                if found is not None and found != wanted[0]:
                    how = "in pieces" if cuts else "at once"
                    more, less = found - wanted[0], wanted[0] - found
                    return Failure("answer", f"{how}: too much {dict(more)}, missing {dict(less)}")
    except (Hang, Exception) as error:
        return Failure(type(error).__name__, f"{type(error).__name__}: {error}")
    return None


def answer_case(random: Random) -> tuple[Failure, str] | None:
    """Run a query made by chance; return what goes wrong, and a short query over few rows that makes it."""
    sql = Queries(random).query().sql
    fed = {table: rows(random, table) for table in COLUMNS}
    seed = random.randrange(1 << 30)
    failure = answered(sql, fed, seed)
    if failure is None:
        return None

    def fails(sql: str, fed: Fed) -> bool:
        found = answered(sql, fed, seed)
        return found is not None and found.kind == failure.kind

    for table in fed:
        others = dict(fed)
        fed[table] = list(shortest(fed[table], partial(_with_rows, fails, sql, others, table)))
    sql = "".join(shortest(tokens(sql), lambda parts: fails("".join(parts), fed)))
    return answered(sql, fed, seed) or failure, f"{sql}\n" + "\n".join(f"-- {t}: {given}" for t, given in fed.items())


def _with_rows(
    fails: Callable[[str, Fed], bool], sql: str, fed: Fed, table: str, some: Sequence[tuple[object, ...]]
) -> bool:
    return fails(sql, {**fed, table: list(some)})


def shortest(parts: Sequence[T], fails: Callable[[Sequence[T]], bool], most: int = 150) -> Sequence[T]:
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
