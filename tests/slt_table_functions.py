"""Python table functions that the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import udtf


@dataclass
class Word:
    word: str
    length: int


@udtf
def split_words(text: str, separator: str | None = None) -> Iterator[Word]:
    for word in text.split(separator):
        yield Word(word, len(word))


class Step(NamedTuple):
    n: int
    half: float | None


@udtf
def steps(until: int | None, by: int = 1) -> Iterator[Step]:
    for n in range(0, -1 if until is None else until, by):
        yield Step(n, n / 2 if n else None)


@udtf
def pairs(x: int) -> list[tuple[int, str]]:
    return [(x, "a"), (-x, "b")] if x else []


@udtf
def digits(x: int) -> Iterator[int]:
    if x < 0:
        raise ValueError("a sign is no digit")
    yield from map(int, str(x))


@udtf
def wrong_field(x: int) -> Iterator[Word]:
    yield Word("fine", 1)
    yield Word("x", "long" if x else 0)  # type: ignore[arg-type]


@udtf(deterministic=False)
def changing_rows(x: int) -> Iterator[int]:
    yield x


@udtf
class Repeated:
    def open(self) -> None:
        self.made = 0

    def eval(self, text: str, times: int = 2) -> Iterator[str]:
        for _ in range(times):
            yield text


@udtf(vectorized=True, returns="STRUCT(n BIGINT, square DOUBLE)")
def below(x: pa.Int64Array) -> tuple[pa.Table, list[int]]:
    rows = [(i, n) for i, x in enumerate(x.to_pylist()) for n in range(x or 0)]
    index = [i for i, _ in rows]
    n = pa.array([n for _, n in rows], pa.int64())
    return pa.table({"n": n, "square": pc.multiply(n, n)}), index


TABLE_FUNCTIONS = (split_words, steps, pairs, digits, wrong_field, changing_rows, Repeated, below)
