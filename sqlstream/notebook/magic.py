"""`%%sqlstream`: a cell of SQL, which runs in a session of the notebook, as in the shell."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import duckdb

from sqlstream.errors import SourceText, Span, SqlStreamError, UsageError, plainly
from sqlstream.jobs.job import Job
from sqlstream.notebook.html import MOST, job_html, relation_html, table
from sqlstream.session.changes import Changes
from sqlstream.session.job_texts import progress_text
from sqlstream.session.rendering import write_rows
from sqlstream.session.routing import Route, route
from sqlstream.session.session import Session
from sqlstream.shell.entries import Command, alone, parts
from sqlstream.shell.result_views import MaterializedTable

_REDRAW_SECONDS = 0.25
# The notebook's variable with the session, so that Python cells can use the same one.
SESSION = "sqlstream_session"


class Magic:
    """Runs cells in the session in the notebook's variable SESSION; opens a session if the variable has none."""

    def __init__(self, ipython: Any):
        self._ipython = ipython
        self._own: Session | None = None

    @property
    def session(self) -> Session:
        """The session of the notebook, which is opened if there is none."""
        session = self._ipython.user_ns.get(SESSION)
        if isinstance(session, Session):
            return session
        self._own = Session()
        self._ipython.push({SESSION: self._own})
        return self._own

    def run(self, line: str, cell: str | None = None) -> object:
        """Run `%sqlstream SELECT ..`, or the cell below `%%sqlstream [NAME]`; return the last result, or store it as NAME.

        Without a NAME, the changes of an unbounded result are shown until it ends. Raises SqlStreamError.
        """
        name = line.strip() if cell is not None else ""
        if name and not name.isidentifier():
            raise UsageError(f'"{name}" is not a name of Python', hint="Write %%sqlstream NAME, and the SQL below it.")
        result: object = None
        with plainly():
            for part in parts(SourceText("cell", line if cell is None else cell)):
                if isinstance(result, Changes):
                    # Nothing else refers to it: its job would run on.
                    result.close()
                    span = part.span if isinstance(part, Command) else part
                    raise UsageError("a SELECT over input that does not end is the last statement of a cell", span)
                if isinstance(part, Command):
                    raise UsageError("commands are for the shell", part.span, hint="sqlstream shell has them.")
                result = self._run(part)
        if name:
            self._ipython.push({name: result})
            return None
        if isinstance(result, Changes):
            self._follow(result)
            return None
        return result

    def _run(self, statement: Span) -> object:
        session, source = self.session, alone(statement)
        if route(source, session.compiler) is Route.QUERY:
            try:
                return session.query(statement.text)
            except SqlStreamError as error:
                if error.span is not None and error.span.source.text == statement.text:
                    start = statement.start + error.span.start
                    error.span = Span(statement.source, start, statement.start + error.span.end)
                raise
        with _plain_warnings():
            return session.run(session.compile(source))

    def _follow(self, changes: Changes) -> None:
        """Show a result while it changes, until it ends or the kernel is interrupted; then stop its job."""
        rows, count = MaterializedTable(1_000_000), 0
        display = self._ipython.display_pub
        handle = f"sqlstream-{id(changes)}"
        numbers = [False] * len(changes.columns)

        def draw(*, again: bool) -> None:
            note = f"{len(rows):,} rows after {count:,} changes" if again else progress_text(changes.job)
            html = table(changes.columns, rows.newest(MOST), numbers, note)
            plain = io.StringIO()
            write_rows(changes.columns, rows.newest(MOST), plain, numbers)
            data = {"text/html": html, "text/plain": f"{plain.getvalue()}{note}"}
            display.publish(data, transient={"display_id": handle}, update=again)

        draw(again=False)
        try:
            ended = False
            while not ended:
                # First, so that no change is missed that comes between this call and the next.
                ended = changes.has_ended()
                while new_changes := changes.take(0.0 if ended else _REDRAW_SECONDS):
                    count += len(new_changes)
                    for change in new_changes:
                        numbers = [a or _is_number(v) for a, v in zip(numbers, change.row.values(), strict=True)]
                        rows.apply(change.kind, tuple(None if v is None else str(v) for v in change.row.values()))
                    draw(again=True)
        except KeyboardInterrupt:
            # The user has seen enough.
            return
        finally:
            changes.close()

    def close(self) -> None:
        """Close the session if the magic has opened it; a session of the user stays open."""
        if self._own is not None:
            self._own.close()
            self._ipython.user_ns.pop(SESSION, None)
            self._own = None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show warnings without the line of Python code that raises them."""

    def show(message: Warning | str, *rest: object, **named: object) -> None:
        print(message, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def load(ipython: Any) -> None:
    """Register the magic `sqlstream`, and the HTML of relations and jobs, in an IPython shell."""
    magic = Magic(ipython)
    ipython.register_magic_function(magic.run, "line_cell", "sqlstream")
    html = ipython.display_formatter.formatters["text/html"]
    html.for_type(duckdb.DuckDBPyRelation, relation_html)
    html.for_type(Job, job_html)
    _loaded[id(ipython)] = magic


def unload(ipython: Any) -> None:
    """Close the session that the magic has opened in an IPython shell."""
    if (magic := _loaded.pop(id(ipython), None)) is not None:
        magic.close()


# By the id of the IPython shell: a process may have several.
_loaded: dict[int, Magic] = {}
