"""The options that all connectors have which follow a table by a log, in the spelling of Flink's, and their parsed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlstream.catalog import Table
from sqlstream.connectors.options import COUNT, DURATION, NUMBER, OptionType, TableOption
from sqlstream.errors import BindError
from sqlstream.units import Duration, parse_duration


def one_of(*words: str) -> OptionType:
    """Return the type of an option that has one of a few values."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f'"{text}" is not one of {", ".join(words)}')
        return text

    return OptionType(" or ".join(words), parse)


_MOST, _INTERVAL, _RETRIES = "source.max-rows-per-batch", "source.monitor-interval", "connect.max-retries"
_BOUNDED, _ON_TRUNCATE = "scan.bounded.mode", "scan.on-truncate"
BOUNDED = TableOption(
    _BOUNDED,
    one_of("unbounded", "latest-offset"),
    "`latest-offset`: the table ends with the changes that there are when the job begins",
    "unbounded",
)


def on_truncate(what: str) -> TableOption:
    """Return the option that says what becomes of a job when rows go without changes; `what` names what does that."""
    return TableOption(
        _ON_TRUNCATE,
        one_of("fail", "ignore"),
        f"what {what} does: the job fails, or goes on with the rows as they were",
        "fail",
        mutable=True,
    )


READING = (
    TableOption(_INTERVAL, DURATION, "how often to look for changes", "500 ms", mutable=True),
    TableOption(
        _MOST, COUNT, "how many changes a batch reads, at least: a transaction is not cut", "100000", mutable=True
    ),
    TableOption(
        _RETRIES,
        NUMBER,
        "how often a server that is away is asked again, each time after a longer wait",
        "10",
        mutable=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a log is read.

    A batch has at least `most` changes if the log has them, as transactions are not cut. `retries` is how often a lost
    connection is tried again.
    """

    bounded: bool
    skips_truncate: bool
    interval: Duration
    most: int
    retries: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Reading:
        """Return the settings in the valid options of a table, defaults among them."""
        return cls(
            options[_BOUNDED] == "latest-offset",
            options[_ON_TRUNCATE] == "ignore",
            parse_duration(options[_INTERVAL]),
            int(options[_MOST]),
            int(options[_RETRIES]),
        )


def check_address(table: Table, parts: Mapping[str, str]) -> None:
    """Raise BindError for the option `url` beside one of its `parts`, such as `hostname`."""
    both = sorted(set(parts) & set(table.options)) if "url" in table.options else []
    if both:
        message = f'table "{table.name}" has both "url" and "{both[0]}"'
        raise BindError(message, table.option_span(both[0]), hint="The url says it: leave one of them out.")
