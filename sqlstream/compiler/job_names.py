"""What jobs are called: by SET 'pipeline.name', or after the first table that they write."""

from __future__ import annotations

from sqlstream.errors import BindError, Span
from sqlstream.sql.nodes import Insert, Select, StatementSet, head


class JobNames:
    """The names of the jobs of the scripts that are being compiled, and where each job is: no name is given twice."""

    def __init__(self) -> None:
        self._taken: dict[str, Span] = {}

    def clear(self) -> None:
        """Forget all names: other scripts are compiled."""
        self._taken.clear()

    def name(self, statement: Insert | StatementSet | Select, first: str, explicit: str) -> str:
        """Return the name of a job that first writes a table; `explicit` is 'pipeline.name'. Raises when it is taken."""
        if isinstance(statement, Insert) and statement.appends:
            # Every INSERT .. VALUES into a table is a further batch of one job.
            return f"{first}_values"
        if explicit and not isinstance(statement, Select):
            if (before := self._taken.get(explicit.lower())) is not None:
                raise BindError(
                    f'a second INSERT runs under the name "{explicit}"',
                    head(statement),
                    detail=f"The first one is at {before}.",
                    hint="SET 'pipeline.name' to another name before it.",
                )
            self._taken[explicit.lower()] = statement.span
            return explicit
        name = wanted = f"{first}_set" if isinstance(statement, StatementSet) else first
        number = 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken[name.lower()] = statement.span
        return name
