"""Contracts of results that change: the state per key, and the result that is computed from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Select
from sqlstream.operators.operator import Holds


class KeptState(ABC):
    """The state of each key, in parts: tables of the operator.

    Columns start with the keys. Exactly one part has one row per key; its last column AT is the time of the key's last row. If
    that part is KEYS, the operator makes its rows itself.
    """

    @property
    @abstractmethod
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        """The columns of the rows that arrive, by part."""

    @property
    @abstractmethod
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        """The columns of the state, without the weight, by part."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, Select]:
        """By part, what the upstream fragment computes over `_rows`: the columns `deltas`, encoded for storage."""

    @abstractmethod
    def advance(self, part: str, old: Relation, delta: Relation) -> Select:
        """Return a part's new state, with weights, from its old state and arrived rows.

        A key's new state depends on no other key, so callers pass only the keys of a batch.
        """

    @property
    def counts_rows(self) -> bool:
        """Whether each key has one row, which counts the rows that have arrived, so that no batch leaves it as it was."""
        return False

    @property
    def holds(self) -> Holds:
        """The state columns that store each column or call, by its name and then by part."""
        return {}

    def counters(self, old: Relations, delta: Relations) -> Mapping[str, Select]:
        """Return, by counter, a number to add to it, computed from the old state and arrived rows."""
        return {}


class ChangingResult(ABC):
    """Computes a result from the state. A key's result depends on no other key, so callers pass only the keys of a batch."""

    @property
    @abstractmethod
    def state(self) -> KeptState:
        """The state that the result is computed from."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns of the result, without the weight."""

    @property
    @abstractmethod
    def keys_of_rows(self) -> tuple[str, ...]:
        """The SQL of each key over a row of the result."""

    @abstractmethod
    def result(self, relations: Relations) -> Select:
        """Return the result, without weights, of the parts: Z-sets with each row once."""

    def emitted(self, relations: Relations) -> Select:
        """Return the rows that have been emitted for a state: `result`, unless an upgrade has changed the query since."""
        return self.result(relations)

    @property
    def manner(self) -> str:
        """How the result handles retractions, in words for EXPLAIN; empty where there is only one way."""
        return ""

    @property
    def accumulators(self) -> tuple[Column, ...]:
        """The columns that `shown` appends to the result: accumulators of users' aggregate functions."""
        return ()

    def shown(self, relations: Relations) -> Select:
        """Return the result and `accumulators`, as a view of the state shows them."""
        return self.result(relations)

    @property
    def ordered(self) -> frozenset[str]:
        """The parts whose rows must be read in one fixed order, because the result depends on it.

        A sum of floating-point numbers depends on the order of addition: recomputed in another order, it may differ in the last
        digit from the emitted row and would not retract it.
        """
        return frozenset()

    @property
    def opening(self) -> Mapping[str, Select]:
        """By part, rows that arrive before the first batch."""
        return {}
