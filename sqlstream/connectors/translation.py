"""Options of tables of Flink in place of which other options stand here, and the errors of those that have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class UntranslatableTable(Exception):
    """A table whose options cannot be those of a table here: `option` is at fault."""

    def __init__(self, message: str, option: str, hint: str):
        super().__init__(message)
        self.message, self.option, self.hint = message, option, hint


@dataclass(frozen=True, slots=True)
class TranslatedOptions:
    """The options of a table in place of those of Flink; `origins` has the option that each comes from, by its name."""

    options: Mapping[str, str]
    origins: Mapping[str, str]
