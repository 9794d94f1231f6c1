"""Files with MIGRATE STATE statements, in a session: their SELECTs can read what state queries read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb

from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.compiler.project import Project
from sqlstream.errors import SourceText
from sqlstream.jobs.restoring import Restore
from sqlstream.jobs.upgrades.migrations import Given, Migrations
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.session.state_queries import query
from sqlstream.sql.migrations import only_migrations
from sqlstream.sql.statements import parse_script
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoints import find_savepoint


def upgrade_with(
    project: Project,
    compiler: Compiler,
    compiled: Sequence[Compiled],
    source: SourceText,
    restored: Iterable[Restore] = (),
) -> Upgrade:
    """Return the upgrade of compiled jobs with the MIGRATE STATE statements in `source`. Raises errors that point into it.

    The statements may name a job of `restored` by its name in the savepoint, too.
    """
    names = [one.name for one in compiled if isinstance(one, PlannedJob) and not (one.appends or one.is_query)]
    names += [find_savepoint(Warehouse(project.warehouse), one.savepoint).record.job for one in restored]
    migrations = _migrations(project, compiler, source)
    migrations.check_jobs(names)
    return Upgrade(migrations)


def _migrations(project: Project, compiler: Compiler, source: SourceText) -> Migrations:
    def read(sql: str, relations: Given, state: Warehouse) -> duckdb.DuckDBPyRelation:
        return query(project, compiler, sql, {"": state}, relations)

    return Migrations(only_migrations(source, parse_script(source)), read)
