"""Requests from several threads, answered one after the other, or several that wait together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Request(Generic[Q, A]):
    """What a thread has asked, and its answer or error once there is one."""

    def __init__(self, question: Q):
        self.question = question
        self._answer: A | None = None
        self._error: BaseException | None = None
        self._answered = threading.Event()

    @property
    def is_answered(self) -> bool:
        return self._answered.is_set()

    def answer(self, found: A) -> None:
        self._answer = found
        self._answered.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._answered.set()

    def awaited(self) -> A:
        """Wait for the answer. Raises what the request failed with."""
        self._answered.wait()
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]


class Turns(Generic[Q, A]):
    """Lets one thread at a time answer requests: its own, and those that wait by then, `most` at most.

    A lookup leaves the interpreter to other threads for each of its statements. If several were at it, each would wait to get it
    back, up to 5 ms (`sys.getswitchinterval`) each time: all would take several times as long as one after the other.
    """

    def __init__(self, answer: Callable[[Sequence[Request[Q, A]]], None], most: int):
        self._answer, self._most = answer, most
        self._waiting: deque[Request[Q, A]] = deque()
        self._running, self._reading = threading.Lock(), threading.Lock()

    def ask(self, question: Q) -> A:
        """Return the answer to a question, or raise its error."""
        request = Request[Q, A](question)
        self._waiting.append(request)
        with self._running:
            # A thread that had its turn before may have taken it along.
            if request in self._waiting:
                self._take_turn(request)
        return request.awaited()

    def _take_turn(self, own: Request[Q, A]) -> None:
        self._waiting.remove(own)
        taken = [own]
        while self._waiting and len(taken) < self._most:
            taken.append(self._waiting.popleft())
        try:
            self._answer(taken)
        except BaseException as error:
            for request in taken:
                if not request.is_answered:
                    request.fail(error)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let others have their turns while a block runs that takes long; there is one such block at a time."""
        self._running.release()
        try:
            with self._reading:
                yield
        finally:
            self._running.acquire()
