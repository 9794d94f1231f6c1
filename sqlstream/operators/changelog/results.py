"""Contracts of results that change: the state per key, and the result that is computed from it.

A FROM item is SQL that can follow FROM: the name of a table, or a subquery in parentheses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from sqlstream.catalog import Column
from sqlstream.operators.operator import Holds


class KeptState(ABC):
    """The state of each key, in parts: tables of the operator.

    Columns start with the keys. Exactly one part has one row per key, with AT as its last column; where that part is KEYS, no
    rows arrive for it.
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
    def parts(self) -> Mapping[str, str]:
        """By part, the SELECT over `_rows` that the upstream fragment runs: the columns `deltas`, encoded for storage."""

    @abstractmethod
    def advance(self, part: str, old: str, delta: str) -> str:
        """Return the SELECT of a part's new state, with weights, from FROM items of its old state and of arrived rows.

        A key's new state depends on no other key: only the keys of a batch are passed.
        """

    @property
    def holds(self) -> Holds:
        """The state columns that store each column or call, by its name and then by part."""
        return {}

    def counters(self, old: Mapping[str, str], delta: Mapping[str, str]) -> Mapping[str, str]:
        """Return, by counter, the SELECT of a number to add to it, over FROM items of the old state and of arrived rows."""
        return {}


class ChangingResult(ABC):
    """Computes a result from the state. A key's result depends on no other key: only some keys are passed."""

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
    def result(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result, without weights, over FROM items of the parts: Z-sets with each row once."""

    def emitted(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the rows emitted for a state: `result`, unless an upgraded query resumes from an older one."""
        return self.result(relations)

    @property
    def manner(self) -> str:
        """How the result handles retractions, in words for EXPLAIN; empty where there is only one way."""
        return ""

    @property
    def accumulators(self) -> tuple[Column, ...]:
        """The columns that `shown` appends to the result: accumulators of users' aggregate functions."""
        return ()

    def shown(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result and `accumulators`, as a view of the state shows them."""
        return self.result(relations)

    @property
    def ordered(self) -> frozenset[str]:
        """The parts whose rows must be read in one fixed order, because the result depends on it.

        A sum of floating-point numbers depends on the order of addition: recomputed in another order, it may differ in the last
        digit from the emitted row and would not retract it.
        """
        return frozenset()

    @property
    def opening(self) -> Mapping[str, str]:
        """By part, the SELECT of rows that arrive before the first batch."""
        return {}
