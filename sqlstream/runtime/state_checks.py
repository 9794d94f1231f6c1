"""Runs the state checks of a job after the commit of a batch."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
from msgspec.structs import replace

from sqlstream.duck.sql import quote_text
from sqlstream.duck.time_texts import python_values
from sqlstream.errors import JobError, SqlStreamError
from sqlstream.functions.registration import register_for_queries
from sqlstream.queries.query import Sandbox, translate
from sqlstream.runtime.worker import JobSpec
from sqlstream.units import now
from sqlstream.warehouse.checks import (
    BROKEN,
    ERROR,
    MAX_ROWS,
    PASSED,
    STOP,
    CheckResult,
    StateCheck,
    checks,
    read_results,
    write_results,
)
from sqlstream.warehouse.paths import Warehouse

# The characters of a row that breaks a check that are shown.
_SHOWN = 200
_BATCH_ROWS = 10_000


class StateChecks:
    """The state checks of a running job, and their latest results."""

    def __init__(self, job: JobSpec, warehouse: Warehouse):
        self._job, self._warehouse = job, warehouse
        self._paths = warehouse.job(job.name)
        self._checks: tuple[StateCheck, ...] = ()
        # The files of the checks when they were last read.
        self._seen: object = None
        self._results: dict[tuple[str, str | None], CheckResult] = {
            (r.name, r.operator): r for r in read_results(warehouse.fs, self._paths)
        }
        self._statuses: dict[tuple[str, str | None], str] = {}
        self._looked: dict[str, int] = {}
        self._written: tuple[CheckResult, ...] = ()
        self._sandbox: Sandbox | None = None

    def compile(self) -> None:
        """Run all checks once, and ignore their results. Raises SqlStreamError for the first whose query fails."""
        self._read()
        for check in self._checks:
            try:
                self._run(check)
            except SqlStreamError as error:
                raise _refused(check, error) from error

    def look(self, version: int, rows: Mapping[str, int], *, every: bool = False) -> list[str]:
        """Run the checks that are due at a committed version, or `every` check; return warnings about new failures.

        `rows` are the numbers of rows in the states of operators, by name. Raises JobError if a check is broken that stops the
        job.
        """
        self._read()
        results = [*self._max_rows(version, rows), *self._queries(version, every=every)]
        news = []
        for result in results:
            key = result.name, result.operator
            self._results[key] = result
            # A failure is new to each run of the job, whatever an earlier run has reported.
            if result.status != PASSED and self._statuses.get(key) != result.status:
                news.append(f"state check {_sentence(result)}")
            self._statuses[key] = result.status
        if [(r.name, r.status) for r in self._all()] != [(r.name, r.status) for r in self._written]:
            self.write()
        if (broken := next((r for r in results if r.status == BROKEN and r.action == STOP), None)) is not None:
            self.write()
            raise self._error(broken)
        return news

    def write(self) -> None:
        """Store the latest results in the job's folder, if they have changed."""
        results = self._all()
        if results != self._written:
            write_results(self._warehouse.fs, self._paths, results)
            self._written = results

    def close(self) -> None:
        """Store the latest results, and close the database that runs the queries of checks."""
        self.write()
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def _all(self) -> tuple[CheckResult, ...]:
        """Return the latest results of the checks that exist now, sorted by name."""
        names = {check.name for check in self._checks}
        results = (r for r in self._results.values() if r.name in names or self._is_limit(r))
        return tuple(sorted(results, key=lambda r: (r.name, r.operator or "")))

    def _is_limit(self, result: CheckResult) -> bool:
        return result.name == MAX_ROWS and result.operator in self._job.max_rows

    def _read(self) -> None:
        """Read the checks again when files have changed."""
        files = self._warehouse.fs.infos(self._warehouse.checks)
        if files == self._seen:
            return
        self._seen, before = files, {check.name: check for check in self._checks}
        self._checks = tuple(checks(self._warehouse, self._job.name))
        for check in self._checks:
            if before.get(check.name, check) != check:
                # Its definition has changed: it is run after the next batch.
                self._looked.pop(check.name, None)

    def _error(self, result: CheckResult) -> JobError:
        """Return the error for a job that a broken check stops."""
        ways = f"correct the check or write DROP STATE CHECK {result.name}"
        if result.name == MAX_ROWS:
            limit = self._job.max_rows_as_set.get(result.operator or "", "'sqlstream.state.max-rows'")
            ways = f"raise the limit, given by {limit}, or set 'sqlstream.state.max-rows-action' to 'warn'"
        return JobError(
            f"state check {_sentence(result)}",
            detail=as_left(result.version),
            hint=f"The job starts again when the check passes: {ways}.",
        )

    def _max_rows(self, version: int, counts: Mapping[str, int]) -> list[CheckResult]:
        """Return the results of the limits of the option, by the numbers of rows that batches have reported."""
        results = []
        for operator, most in self._job.max_rows.items():
            rows = counts.get(operator, 0)
            too_many = max(rows - most, 0)
            results.append(
                CheckResult(
                    MAX_ROWS,
                    operator,
                    f"at most {_rows(most)}",
                    1,
                    self._job.max_rows_action,
                    BROKEN if too_many else PASSED,
                    version,
                    now(),
                    too_many,
                    _rows(rows) if too_many else None,
                )
            )
        return results

    def _queries(self, version: int, *, every: bool) -> list[CheckResult]:
        results = []
        for check in self._checks:
            looked = self._looked.get(check.name)
            if not every and looked is not None and version < looked + check.every:
                continue
            self._looked[check.name] = version
            result = CheckResult(
                check.name, check.operator, check.sql, check.every, check.action, PASSED, version, now()
            )
            try:
                rows, first = self._run(check)
            except SqlStreamError as error:
                results.append(replace(result, status=ERROR, detail=error.message))
                continue
            results.append(replace(result, status=BROKEN, rows=rows, detail=first) if rows else result)
        return results

    def _run(self, check: StateCheck) -> tuple[int, str | None]:
        """Return how many rows break a check, and the text of the first. Raises SqlStreamError if the query fails."""
        if self._sandbox is None:
            functions = self._job.functions
            self._sandbox = Sandbox(
                self._warehouse, functions=[lambda connection: register_for_queries(connection, functions)]
            )
        relation = self._sandbox.query(check.sql)
        count, first = 0, None
        try:
            for batch in relation.to_arrow_reader(_BATCH_ROWS):
                if first is None and batch.num_rows:
                    row = [python_values(column)[0] for column in batch.slice(0, 1).columns]
                    first = _shown(dict(zip(batch.schema.names, row, strict=True)))
                count += batch.num_rows
        except duckdb.Error as error:
            raise translate(error, check.sql) from error
        return count, first


def _shown(row: Mapping[str, object]) -> str:
    text = ", ".join(
        f"{name} = {quote_text(value) if isinstance(value, str) else value}" for name, value in row.items()
    )
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _sentence(result: CheckResult) -> str:
    if result.name == MAX_ROWS:
        return (
            f'"{MAX_ROWS}" is broken: operator "{result.operator}" has {result.detail}, {result.condition} may be there'
        )
    if result.status == ERROR:
        return f'"{result.name}" cannot be looked at: {result.detail}'
    rows = _rows(result.rows)
    return f'"{result.name}" is broken by {rows} at version {result.version}, the first is {result.detail}'


def _rows(count: int) -> str:
    """Return a number of rows in words.

    >>> _rows(1), _rows(2000)
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def as_left(version: int) -> str:
    """Return the sentence, for an error, that says at which version a broken check has stopped the job."""
    return f"Its state is as version {version} left it, and can be queried."


def _refused(check: StateCheck, error: SqlStreamError) -> SqlStreamError:
    error.detail = error.detail or f'State check "{check.name}" asks for it.'
    error.hint = error.hint or f"Correct it with CREATE OR REPLACE STATE CHECK, or write DROP STATE CHECK {check.name}."
    return error
