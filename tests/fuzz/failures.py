"""What went wrong in a case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: a word to tell failures apart, and what a person reads."""

    kind: str
    message: str
