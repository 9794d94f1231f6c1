"""Names of jobs: from SET 'pipeline.name', or from the first table that they write."""

from __future__ import annotations

from sqlstream.errors import BindError, Span
from sqlstream.sql.nodes import Insert, Select, StatementSet, head


class JobNames:
    """The names of the jobs of the scripts that are being compiled, with their positions in the text; names are unique."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    def clear(self) -> None:
        """Forget all names, before other scripts are compiled."""
        self._spans.clear()

    def name(self, statement: Insert | StatementSet | Select, first: str, explicit: str) -> str:
        """Return the name of the job of a statement, and record it.

        `first` is the first table that the job writes, `explicit` is 'pipeline.name' or empty. A name without `explicit` gets a
        number if it is in use. Raises BindError for an `explicit` name that is in use.
        """
        if isinstance(statement, Insert) and statement.appends:
            # All INSERT .. VALUES into a table are batches of one job.
            return f"{first}_values"
        if explicit and not isinstance(statement, Select):
            if (before := self._spans.get(explicit.lower())) is not None:
                raise BindError(
                    f'a second INSERT runs under the name "{explicit}"',
                    head(statement),
                    detail=f"The first one is at {before}.",
                    hint="SET 'pipeline.name' to another name before it.",
                )
            self._spans[explicit.lower()] = statement.span
            return explicit
        name = base = f"{first}_set" if isinstance(statement, StatementSet) else first
        number = 1
        while name.lower() in self._spans:
            number += 1
            name = f"{base}_{number}"
        self._spans[name.lower()] = statement.span
        return name
