"""Python functions that the golden scripts call."""

from __future__ import annotations

from datetime import datetime


def double(x: int) -> int:
    return 2 * x


def or_else(x: str | None, otherwise: str) -> str:
    return otherwise if x is None else x


def reciprocal(x: int) -> float:
    return 1 / x


def hour_of(ts: datetime) -> int:
    return ts.hour


def words(text: str) -> list[str]:
    return text.split()


FUNCTIONS = (double, or_else, reciprocal, hour_of, words)
