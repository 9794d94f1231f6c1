"""The base class of adaptations. Each kind of operator has one, which computes state of a new operator from an older one's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from sqlstream.duck.sql import Select
from sqlstream.jobs.upgrades.adaptations.transfer import StateTransfer
from sqlstream.jobs.upgrades.changes import AdaptedOperator
from sqlstream.logical.plan.state_settings import AnyState
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

S = TypeVar("S", bound=AnyState)


class Adaptation(ABC, Generic[S]):
    """Computes the state of an operator of a new plan from the state of the operator of a job that it continues.

    `old` and `new` are the records of the two operators, `before` and `after` their settings, `stage` is the new one's stage.
    """

    # The settings that may change, by field.
    may_differ: ClassVar[tuple[str, ...]] = ()

    def __init__(self, before: S, after: S, old: OperatorRecord, new: OperatorRecord, stage: StatefulStage):
        self.before, self.after = before, after
        self.old, self.new, self.stage = old, new, stage

    @cached_property
    def transfer(self) -> StateTransfer:
        """The columns of the old state that the new state takes over."""
        return StateTransfer(self.old, self.new)

    def check_settings(self) -> None:
        """Raise CannotAdapt if a setting has changed that is not in `may_differ`."""
        self.transfer.check_settings(self.may_differ)

    @abstractmethod
    def adapted(self) -> AdaptedOperator:
        """Return the new state, with notes for people. Raises CannotAdapt."""

    def result(self, notes: list[str], tables: dict[str, Select]) -> AdaptedOperator:
        """Return an Adapted with notes for people and the state tables."""
        return AdaptedOperator(self.new.name, self.old.name, tuple(notes), tables)
