"""Answers questions of several threads: one at a time, or together those that wait at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Waiting(Generic[Q, A]):
    """A question whose answer a thread waits for. One that `is_single` is answered by that thread itself."""

    def __init__(self, question: Q):
        self.question = question
        self.answer: A | None = None
        self.is_single = False


class Turns(Generic[Q, A]):
    """Lets one thread at a time answer its question, together with those of threads that wait by then, `most` at a time.

    A lookup leaves the interpreter to other threads for each of its statements. If several were at it, each would wait to get it
    back, up to 5 ms (`sys.getswitchinterval`) each time: all would take several times as long as one after the other.

    `together` sets the answers that it can. Each question that it leaves is asked `alone`, by its own thread.
    """

    def __init__(self, together: Callable[[Sequence[Waiting[Q, A]]], None], alone: Callable[[Q], A], most: int) -> None:
        self._together, self._alone, self._most = together, alone, most
        self._waiting: list[Waiting[Q, A]] = []
        self._changing, self._running, self._reading = threading.Lock(), threading.Lock(), threading.Lock()

    def ask(self, question: Q) -> A:
        """Return the answer to a question. Raises what `alone` does."""
        own = Waiting[Q, A](question)
        with self._changing:
            self._waiting.append(own)
        with self._running:
            # A thread that had its turn before may have answered it; otherwise it is among those that wait.
            if own.answer is None:
                self._answer_with_others(own)
            return self._alone(question) if own.answer is None else own.answer

    def _answer_with_others(self, own: Waiting[Q, A]) -> None:
        with self._changing:
            self._waiting.remove(own)
            others = [r for r in self._waiting if not r.is_single][: 0 if own.is_single else self._most - 1]
            self._waiting = [r for r in self._waiting if r not in others]
        if not others:
            return
        try:
            self._together([own, *others])
        finally:
            with self._changing:
                for request in others:
                    if request.answer is None:
                        request.is_single = True
                        self._waiting.append(request)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let others have their turns while a block runs that takes long; there is one such block at a time."""
        self._running.release()
        try:
            with self._reading:
                yield
        finally:
            self._running.acquire()
