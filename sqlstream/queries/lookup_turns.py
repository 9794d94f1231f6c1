"""Turns of threads: one thread at a time answers its question, together with others that wait at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class PendingRequest(Generic[Q, A]):
    """A question whose answer a thread waits for. With `is_single`, that thread answers it, alone."""

    def __init__(self, question: Q):
        self.question = question
        self.answer: A | None = None
        self.is_single = False


class RequestBatcher(Generic[Q, A]):
    """Lets one thread at a time answer its question, together with up to `most` - 1 questions that wait.

    A lookup releases the interpreter lock for each of its statements. If several threads ran lookups, each would wait up to 5 ms
    (`sys.getswitchinterval`) to get the lock back, every time: all together would take several times as long.

    `together` sets the answers to as many questions as it can. `alone` answers each of the others, in the thread that asks it.
    """

    def __init__(
        self, together: Callable[[Sequence[PendingRequest[Q, A]]], None], alone: Callable[[Q], A], most: int
    ) -> None:
        self._together, self._alone, self._most = together, alone, most
        self._waiting: list[PendingRequest[Q, A]] = []
        self._changing, self._running, self._reading = threading.Lock(), threading.Lock(), threading.Lock()

    def ask(self, question: Q) -> A:
        """Return the answer to a question. Raises what `alone` raises."""
        own = PendingRequest[Q, A](question)
        with self._changing:
            self._waiting.append(own)
        with self._running:
            # Another thread may have answered it, and removed it from the waiting questions.
            if own.answer is None:
                self._answer_with_others(own)
            return self._alone(question) if own.answer is None else own.answer

    def _answer_with_others(self, own: PendingRequest[Q, A]) -> None:
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
    def suspended(self) -> Iterator[None]:
        """Give up the turn while a long block runs, and take it again at the end. One such block runs at a time."""
        self._running.release()
        try:
            with self._reading:
                yield
        finally:
            self._running.acquire()
