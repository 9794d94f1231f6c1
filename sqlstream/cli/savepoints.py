"""`sqlstream savepoint` and `sqlstream savepoints`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sqlstream.cli.query import show
from sqlstream.compiler.listings import savepoints_of
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint

if TYPE_CHECKING:
    from sqlstream.session.session import Session


def take(session: Session, job: str, name: str | None, to: str | None) -> None:
    """Take a savepoint of a job and print where it is; `to` is a folder outside of the warehouse."""
    savepoint = take_savepoint(session.warehouse, job, name, to)
    record = savepoint.record
    where = f' in "{savepoint.warehouse.root}"' if to is not None else ""
    click.echo(f'savepoint "{record.name}" of job "{record.job}" at version {record.version}{where}', err=True)


def show_savepoints(job: str | None, project: str | None, warehouse: str | None) -> None:
    """Print the savepoints of a warehouse, or of one job."""
    show(savepoints_of(job), "table", None, project, warehouse)
