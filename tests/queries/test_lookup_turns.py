"""Questions of several threads are answered together, and one that takes long delays no others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from sqlstream.queries.lookup_turns import PendingRequest, RequestBatcher
from tests.processes import wait_until


class Doubling:
    """Doubles numbers, odd ones alone only; 1 takes long, and 3 fails."""

    def __init__(self, most: int) -> None:
        self.turns = RequestBatcher[int, int](self.together, self.alone, most)
        self.groups = list[list[int]]()
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def together(self, requests: Sequence[PendingRequest[int, int]]) -> None:
        self.groups.append([request.question for request in requests])
        for request in requests:
            if request.question % 2 == 0:
                request.answer = 2 * request.question

    def alone(self, number: int) -> int:
        if number == 1:
            self.begun.set()
            with self.turns.suspended():
                assert self.goes_on.wait(60)
        if number == 3:
            raise ValueError("three")
        return 2 * number


def test_those_that_wait_are_answered_together_and_what_is_left_alone() -> None:
    doubling = Doubling(most=4)
    with ThreadPoolExecutor(20) as threads:
        with doubling.turns._running:
            asked = [threads.submit(doubling.turns.ask, number) for number in range(2, 12)]
            wait_until(lambda: len(doubling.turns._waiting) == 10)
        found = dict(enumerate(asked, 2))
        with pytest.raises(ValueError, match="three"):
            found.pop(3).result()
        assert {number: future.result() for number, future in found.items()} == {n: 2 * n for n in found}
    assert not doubling.turns._waiting
    assert all(len(group) <= 4 for group in doubling.groups)
    # Each is tried with others once at most, but for the one whose thread has the turn.
    assert len(doubling.groups) < 10


def test_what_takes_long_delays_no_others() -> None:
    doubling = Doubling(most=4)
    with ThreadPoolExecutor(20) as threads:
        long = threads.submit(doubling.turns.ask, 1)
        assert doubling.begun.wait(60)
        others = [threads.submit(doubling.turns.ask, number) for number in (2, 5, 4, 7)]
        assert [future.result(60) for future in others] == [4, 10, 8, 14]
        assert not long.done()
        doubling.goes_on.set()
        assert long.result(60) == 2
