"""Options of topics as sources: where reading starts and ends, and how much a batch reads. The names are Flink's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from sqlstream.catalog import Table
from sqlstream.connectors.kafka.client import GROUP, PREFIX, SERVERS
from sqlstream.connectors.kafka.cluster import topics
from sqlstream.connectors.options import COUNT, DURATION, NUMBER, SIZE, TEXT, OptionType, TableOption
from sqlstream.errors import BindError
from sqlstream.units import Duration, parse_bytes, parse_duration

EARLIEST, LATEST, GROUP_OFFSETS = "earliest-offset", "latest-offset", "group-offsets"
TIMESTAMP, SPECIFIC, UNBOUNDED = "timestamp", "specific-offsets", "unbounded"
FAIL, CONTINUE = "fail", "continue"
STARTUP, BOUNDED = "scan.startup", "scan.bounded"
# Where a partition begins of which the group has no offset. Words of Java clients and of librdkafka; None: that is an error.
RESET = f"{PREFIX}auto.offset.reset"
_RESETS: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), EARLIEST),
    **dict.fromkeys(("latest", "largest", "end"), LATEST),
    **dict.fromkeys(("none", "error")),
}


def one_of(*names: str) -> OptionType:
    """Return the type of an option whose value is one of some words, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(f'"{text}" is not one of {", ".join(names)}')
        return text.lower()

    return OptionType(" or ".join(names) if len(names) == 2 else "word", parse)


def parse_offsets(text: str) -> dict[int, int]:
    """Return the offsets by partition number, from Flink's syntax. Raises ValueError.

    >>> parse_offsets("partition:0,offset:42;partition:1,offset:300")
    {0: 42, 1: 300}
    """
    offsets: dict[int, int] = {}
    for part in filter(None, text.split(";")):
        match = re.fullmatch(r"\s*partition\s*:\s*(\d+)\s*,\s*offset\s*:\s*(\d+)\s*", part)
        if match is None:
            raise ValueError(f'"{part}" is not as partition:0,offset:42')
        offsets[int(match[1])] = int(match[2])
    if not offsets:
        raise ValueError("it names no partition")
    return offsets


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f'"{text}" is no regular expression: {error}') from None


_OFFSETS = OptionType("offsets", parse_offsets)
_PATTERN = OptionType("pattern", _pattern)
TOPIC = TableOption("topic", TEXT, "the topic; several are separated by `;`", required=True, example="orders")
TOPIC_PATTERN = TableOption(
    "topic-pattern", _PATTERN, "in place of `topic`: a regular expression for whole names of topics", instead_of="topic"
)
MAX_ROWS = TableOption(
    "scan.max-rows-per-batch", COUNT, "the most offsets that a batch takes, of all partitions", "1000000", mutable=True
)
MAX_BYTES = TableOption(
    "scan.max-bytes-per-batch",
    SIZE,
    "about how many bytes of keys and values a batch takes at most; a sample of messages tells how long they are",
    "256 MB",
    mutable=True,
)
POLL = TableOption("scan.poll-interval", DURATION, "how often to ask for new rows", "100 ms", mutable=True)
TOPICS_INTERVAL = TableOption(
    "scan.topic-partition-discovery.interval",
    DURATION,
    "how often to look for new partitions; 0 s: never again",
    "10 s",
    mutable=True,
)
OUTAGE = TableOption(
    "scan.outage-timeout", DURATION, "how long no broker may answer before that is an outage", "10 min", mutable=True
)
ON_LOSS = TableOption(
    "scan.on-data-loss",
    one_of(FAIL, CONTINUE),
    "what to do when the topic no longer has offsets that were not read: continue counts them",
    FAIL,
    mutable=True,
)
BOUNDED_OPTIONS = (
    TableOption(
        f"{BOUNDED}.mode",
        one_of(UNBOUNDED, LATEST, GROUP_OFFSETS, TIMESTAMP, SPECIFIC),
        f"where to end: `{UNBOUNDED}`, `{LATEST}` (what there is at the start), `{GROUP_OFFSETS}`, `{TIMESTAMP}` or "
        f"`{SPECIFIC}`",
        UNBOUNDED,
    ),
    TableOption(f"{BOUNDED}.timestamp-millis", NUMBER, "the time at which to end, in ms since 1970"),
    TableOption(f"{BOUNDED}.specific-offsets", _OFFSETS, "where to end in each partition"),
)
READING_OPTIONS = (MAX_ROWS, MAX_BYTES, POLL, TOPICS_INTERVAL, ON_LOSS, OUTAGE)
SOURCE_OPTIONS = (
    TOPIC,
    TOPIC_PATTERN,
    SERVERS,
    TableOption(
        GROUP, TEXT, "the consumer group whose offsets are read and published; without it none is", mutable=True
    ),
    TableOption(
        f"{STARTUP}.mode",
        one_of(EARLIEST, LATEST, GROUP_OFFSETS, TIMESTAMP, SPECIFIC),
        f"where to begin: `{EARLIEST}`, `{LATEST}`, `{GROUP_OFFSETS}`, `{TIMESTAMP}` or `{SPECIFIC}`",
        EARLIEST,
        mutable=True,
    ),
    TableOption(f"{STARTUP}.timestamp-millis", NUMBER, "the time at which to begin, in ms since 1970", mutable=True),
    TableOption(
        f"{STARTUP}.specific-offsets",
        _OFFSETS,
        "where to begin in each partition: `partition:0,offset:42;partition:1,offset:300`",
        mutable=True,
    ),
    *BOUNDED_OPTIONS,
    *READING_OPTIONS,
)
_COMPANIONS: Final[Mapping[str, str]] = {TIMESTAMP: "timestamp-millis", SPECIFIC: "specific-offsets"}


def startup_mode(table: Table) -> str:
    """Return where reading starts: one of the values of `scan.startup.mode`."""
    # Flink's default is the group's offsets. But jobs of one script share a group: each would skip what another one has read.
    return table.options.get(f"{STARTUP}.mode", EARLIEST).lower()


def bounded_mode(table: Table) -> str:
    """Return where reading ends: one of the values of `scan.bounded.mode`."""
    return table.options.get(f"{BOUNDED}.mode", UNBOUNDED).lower()


def reset(table: Table) -> str | None:
    """Return where to start a partition without a committed offset of the consumer group; None if the job must fail."""
    return _RESETS[table.options.get(RESET, "earliest").lower()]


def duration_of(table: Table, option: TableOption) -> Duration:
    """Return the value of an option of type DURATION, or its default."""
    return parse_duration(table.options.get(option.name, option.default))


def max_rows(table: Table) -> int:
    """Return the most offsets of a batch, over all partitions."""
    return int(table.options.get(MAX_ROWS.name, MAX_ROWS.default))


def max_bytes(table: Table) -> int:
    """Return about how many bytes of keys and values a batch reads at most."""
    return parse_bytes(table.options.get(MAX_BYTES.name, MAX_BYTES.default))


def continues(table: Table) -> bool:
    """Whether a job counts lost offsets and continues; otherwise it fails."""
    return table.options.get(ON_LOSS.name, FAIL).lower() == CONTINUE


def validate(table: Table) -> None:
    """Raise BindError for options that do not fit together."""
    named = f'table "{table.name}"'
    if "topic" in table.options and "topic-pattern" in table.options:
        message = f'{named} has both "topic" and "topic-pattern"'
        raise BindError(message, table.option_span("topic-pattern"), hint="Leave out one of them.")
    if "topic" in table.options and not topics(table):
        raise BindError(f'{named}: option "topic" names no topic', table.option_span("topic", value=True))
    modes: tuple[tuple[str, Callable[[Table], str]], ...] = ((STARTUP, startup_mode), (BOUNDED, bounded_mode))
    for group, mode_of in modes:
        mode = mode_of(table)
        for required_mode, companion in _COMPANIONS.items():
            option = f"{group}.{companion}"
            if (mode == required_mode) == (option in table.options):
                continue
            if mode == required_mode:
                message = f'{named}: "{group}.mode" = "{mode}" needs the option "{option}"'
                raise BindError(message, table.option_span(f"{group}.mode", value=True))
            hint = f"Set '{group}.mode' = '{required_mode}', or leave it out."
            raise BindError(f'{named}: option "{option}" has no meaning here', table.option_span(option), hint=hint)
        if mode == SPECIFIC and len(topics(table)) != 1:
            message = f'{named}: "{group}.mode" = "{SPECIFIC}" is for one topic'
            raise BindError(message, table.option_span(f"{group}.mode", value=True))
        if mode == GROUP_OFFSETS and GROUP not in table.options:
            message = f'{named}: "{group}.mode" = "{GROUP_OFFSETS}" needs the option "{GROUP}"'
            raise BindError(message, table.option_span(f"{group}.mode", value=True))
    word = table.options.get(RESET, "earliest")
    if startup_mode(table) == GROUP_OFFSETS and word.lower() not in _RESETS:
        message = f'{named}: option "{RESET}": "{word}" is not one of earliest, latest, none'
        raise BindError(message, table.option_span(RESET, value=True))
