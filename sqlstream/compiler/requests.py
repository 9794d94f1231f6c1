"""What statements are compiled to: jobs, and requests that are answered when the statements before them have run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sqlstream.compiler.catalog_answers import Answer, WarehouseQuery
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.sql.nodes import CreateSavepoint, CreateStateCheck, DescribeState, DropSavepoint, DropStateCheck


@dataclass(frozen=True, slots=True)
class Explanation:
    """The request of EXPLAIN: to show a job, which does not run, at a stage such as LOGICAL."""

    job: PlannedJob
    stage: str


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """The request of CREATE SAVEPOINT or DROP SAVEPOINT; it is executed when the statements before it have run."""

    statement: CreateSavepoint | DropSavepoint


# Requests of statements that are not jobs, and all that a statement can be compiled to.
Question: TypeAlias = (
    Answer | WarehouseQuery | Explanation | SavepointRequest | CreateStateCheck | DropStateCheck | DescribeState
)
Compiled: TypeAlias = PlannedJob | Question
