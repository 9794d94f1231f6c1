"""A short run of the fuzzer (`make fuzz` is a longer one), and what it is made of."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from random import Random

import pytest

from tests.fuzz.cases import case
from tests.fuzz.failures import Failure
from tests.fuzz.shrinking import shortest
from tests.fuzz.texts import corpus, tokens
from tests.fuzz.watching import Watched
from tests.properties.examples import SHARE
from tests.seed import commit_seed

SEED = 1
# So many cases a short run chooses from, and at least so many it tries.
CASES, FEWEST = 30, 6


def test_texts_are_cut_and_put_together_without_loss() -> None:
    assert len(corpus()) > 1000
    assert all("".join(tokens(text)) == text for _, text in corpus())


def test_what_fails_is_made_short() -> None:
    assert shortest(list("abcdefgh"), lambda parts: "c" in parts and "f" in parts) == ["c", "f"]


def test_what_is_printed_is_a_program_that_tries_the_case_again() -> None:
    for number in range(12):
        made = case(SEED, number)
        names: dict[str, object] = {}
        exec(str(made).replace("print(", "again = (").replace(".fails())", ")"), names)
        assert names["again"] == made


@dataclass(frozen=True)
class Bad:
    """Something that no case should do."""

    what: str

    @property
    def seconds(self) -> int:
        # What does not hang has as long as a slow machine needs to start again.
        return 1 if self.what == "hang" else 120

    def fails(self) -> Failure | None:
        match self.what:
            case "hang":
                time.sleep(3600)
            case "abort":
                os.abort()
            case "memory":
                bytes(16 << 30)
            case "raise":
                raise KeyError("k")
        return None


@pytest.mark.slow
@pytest.mark.thorough
def test_a_case_that_hangs_or_dies_is_a_finding() -> None:
    with Watched() as watched:
        for what, kind in {"hang": "hangs", "abort": "died", "memory": "MemoryError", "raise": "KeyError"}.items():
            failure = watched.tried(Bad(what))
            assert failure is not None
            assert failure.kind.startswith(kind)
            # It says where.
            assert "test_fuzz.py" in failure.message
            assert watched.tried(Bad("nothing")) is None


@pytest.mark.slow
def test_a_short_run() -> None:
    # Others for each commit, all in `make test-all`.
    numbers = Random(commit_seed()).sample(range(CASES), max(FEWEST, min(CASES, round(CASES * SHARE))))
    with Watched() as watched:
        tried = {number: watched.tried(case(SEED, number)) for number in sorted(numbers)}
    found = [f"seed {SEED}, case {number}: {what.message}" for number, what in tried.items() if what is not None]
    assert not found, "\n".join(found)
