"""The semantics of expressions while statements are bound: Flink's, or DuckDB's for jobs that began under these."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlstream.errors import Span, StatementWarning
from sqlstream.logical.plan.state_settings import Semantics


@dataclass(slots=True)
class ExpressionSemantics:
    """The semantics of expressions, and the warnings about expressions that were bound.

    `division` is the option `sqlstream.sql.division`: "whole", "double", or "" if it is not set. `differs` becomes true when an
    expression is bound that has another value under the other semantics. `notices` has the warnings by position in the text.
    """

    semantics: Semantics = "flink"
    division: str = ""
    differs: bool = False
    notices: dict[Span, StatementWarning] = field(default_factory=dict)

    def begin(self, division: str) -> None:
        """Reset `differs` and the warnings before the next statement is bound, and set `division`."""
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
        """Add a warning about a `/` of integers, unless the option `division` is set."""
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
        """Add a warning that INSERT cuts off fractions, since it writes numbers of type `source` into an integer column."""
        message = f'column "{column}" is {source}, and is written into {target}: its fraction is cut off'
        self.notices[span] = StatementWarning(
            message, span, hint=f"Write CAST(.. AS {target}) to say so, or ROUND(..)."
        )
