"""Results that change: what is kept of each key, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from sqlstream.catalog import Column
from sqlstream.operators.operator import Holds


class KeptState(ABC):
    """What is kept of each key, in parts.

    Of each part, `deltas` are the columns in which a batch's rows arrive, and `stored` those of the state: both begin with the
    keys. One part has one row for each key, with AT as its last column; where that is KEYS, no rows arrive for it.
    """

    @property
    @abstractmethod
    def deltas(self) -> Mapping[str, tuple[Column, ...]]: ...

    @property
    @abstractmethod
    def stored(self) -> Mapping[str, tuple[Column, ...]]: ...

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, str]:
        """What the fragment before the exchange computes from `_rows`, in the form in which it is stored."""

    @abstractmethod
    def advance(self, part: str, old: str, delta: str) -> str:
        """Return the SELECT of a part's new state, with weights, from FROM-able SQL of the old one and of what has arrived.

        It is the same whatever other keys there are.
        """

    @property
    def holds(self) -> Holds:
        """The columns that hold what rows and calls are called, by part."""
        return {}

    def counters(self, old: Mapping[str, str], delta: Mapping[str, str]) -> Mapping[str, str]:
        """Return SELECTs of numbers to add to counters, over FROM-able SQL of the parts before a batch and of what arrived."""
        return {}


class ChangingResult(ABC):
    """What follows from the state of some keys, the same whatever other keys there are."""

    @property
    @abstractmethod
    def kept(self) -> KeptState: ...

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]: ...

    @property
    @abstractmethod
    def keys_of_rows(self) -> tuple[str, ...]:
        """The SQL of the keys over a row of the result."""

    @abstractmethod
    def result(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result, without weights, over FROM-able SQL of the parts of the state, a row each."""

    def emitted(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of what was emitted of the state: the result, unless a changed query goes on with that state."""
        return self.result(relations)

    @property
    def manner(self) -> str:
        """How results follow from rows that are taken away, in words, where one has a choice."""
        return ""

    @property
    def accumulators(self) -> tuple[Column, ...]:
        """The columns that `shown` has behind those of the result: what is kept of users' aggregate functions."""
        return ()

    def shown(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result as a view of the state shows it."""
        return self.result(relations)

    @property
    def ordered(self) -> frozenset[str]:
        """The parts whose rows must always be in the same order, for else the same rows may give another result.

        A sum of floating-point numbers depends on the order of adding; one that differs in the last digit from what was emitted
        would not take that back.
        """
        return frozenset()

    @property
    def opening(self) -> Mapping[str, str]:
        """The rows that arrive with the first batch before all others, by their part."""
        return {}
