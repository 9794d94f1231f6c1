"""The base class of adaptations. Each kind of operator has one: it makes the state of an operator from that of an older one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from sqlstream.jobs.upgrades.adaptations.carrying import Carrying
from sqlstream.jobs.upgrades.changes import Adapted
from sqlstream.logical.plan.state_settings import AnyState
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

S = TypeVar("S", bound=AnyState)


class Adaptation(ABC, Generic[S]):
    """How a recorded operator of a job becomes one of a new plan: `new` is its record there, `stage` its stage.

    `before` and `after` are the settings of the two.
    """

    # The settings that may change, by field.
    may_differ: ClassVar[tuple[str, ...]] = ()

    def __init__(self, before: S, after: S, old: OperatorRecord, new: OperatorRecord, stage: StatefulStage):
        self.before, self.after = before, after
        self.old, self.new, self.stage = old, new, stage

    @cached_property
    def carrying(self) -> Carrying:
        """The columns of the old state that the new one takes over."""
        return Carrying(self.old, self.new)

    def check_settings(self) -> None:
        """Raise CannotAdapt if other settings have changed."""
        self.carrying.check_settings(self.may_differ)

    @abstractmethod
    def adapted(self) -> Adapted:
        """Return how the new state is made. Raises CannotAdapt."""

    def result(self, notes: list[str], tables: dict[str, str]) -> Adapted:
        """Return the answer with notes for people and the SELECTs of state tables."""
        return Adapted(self.new.name, self.old.name, tuple(notes), tables)
