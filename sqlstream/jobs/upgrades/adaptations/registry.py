"""Which kinds of operators can be adapted to another shape, and by what.

An adaptation is a pure function of the operator as the job recorded it, and as the new plan would record it, both with their
shapes, and of its stage in that plan. It is asked only where the two are of one kind and their shapes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlstream.jobs.upgrades.changes import Adapted, Kept, NotAdaptable
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import OperatorRecord

Adaptation: TypeAlias = Callable[[OperatorRecord, OperatorRecord, StatefulStage], Kept | Adapted | NotAdaptable]

# By `OperatorShape.operator`: the name of the node's class in the logical plan.
ADAPTATIONS: Mapping[str, Adaptation] = {}
