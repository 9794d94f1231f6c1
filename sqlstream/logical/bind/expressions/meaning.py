"""What expressions mean while statements are bound: they have Flink's values, or DuckDB's in jobs that began with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlstream.errors import Span, StatementWarning
from sqlstream.logical.plan.state_settings import Semantics


@dataclass(slots=True)
class Meaning:
    """The values that expressions have, and what was noticed while expressions were bound.

    `division` is the option `sqlstream.sql.division`: "whole", "double", or "" if nobody has set it. `differs` becomes true with
    an expression that has another value in the other semantics.
    """

    semantics: Semantics = "flink"
    division: str = ""
    differs: bool = False
    notices: dict[Span, StatementWarning] = field(default_factory=dict)

    def begin(self, division: str) -> None:
        """Forget what was noticed, before a statement is bound."""
        self.division, self.differs = division, False
        self.notices.clear()

    @property
    def is_flinks(self) -> bool:
        return self.semantics == "flink"

    @property
    def divides_whole(self) -> bool:
        """Whether `/` of two integers is an integer."""
        return self.is_flinks and self.division != "double"

    def notice_division(self, span: Span) -> None:
        """Notice a `/` of integers, unless the option says what it means."""
        if not self.division:
            hint = (
                "For a fraction write CAST(a AS DOUBLE) / b. SET 'sqlstream.sql.division' = 'whole' keeps whole numbers, and "
                "'double' divides all integers as doubles, both without this warning."
            )
            message = "/ of integers is a whole number, as in Flink: 7 / 2 is 3"
            self.notices[span] = StatementWarning(message, span, hint=hint)

    def notice_number(self, value: str, type: str, span: Span) -> None:
        """Notice a text beside a number, which is read as a number of a type."""
        message = f"{value} is a text beside a number, and is read as {type}"
        hint = (
            "A row whose text is no such number is malformed: it is left out and counted. To say what becomes of it write "
            "TRY_CAST(..), which is NULL for it, or CAST(..), which fails the job."
        )
        self.notices[span] = StatementWarning(message, span, hint=hint)

    def notice_cut(self, column: str, source: str, target: str, span: Span) -> None:
        """Notice an INSERT of fractions into a column of integers."""
        message = f'column "{column}" is {source}, and is written into {target}: its fraction is cut off'
        self.notices[span] = StatementWarning(
            message, span, hint=f"Write CAST(.. AS {target}) to say so, or ROUND(..)."
        )
