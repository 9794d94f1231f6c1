"""Options of topics as sinks. The names are Flink's."""

from __future__ import annotations

from sqlstream.catalog import Table
from sqlstream.connectors.options import COUNT, DURATION, TEXT, OptionType, TableOption
from sqlstream.errors import BindError
from sqlstream.units import parse_duration

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = "exactly-once", "at-least-once", "none"
DEFAULT, FIXED, ROUND_ROBIN = "default", "fixed", "round-robin"
FAIL, CONTINUE = "fail", "continue"
# Brokers refuse longer names of topics; librdkafka fails at much longer ones.
_LONGEST_NAME = 249


def _word(*words: str) -> OptionType:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f'"{text}" is not one of {", ".join(words)}')
        return text.lower()

    return OptionType("word", parse)


GUARANTEE = TableOption(
    "sink.delivery-guarantee",
    _word(EXACTLY_ONCE, AT_LEAST_ONCE, NONE),
    f"`{AT_LEAST_ONCE}`; `{EXACTLY_ONCE}`: a transaction for each batch; `{NONE}`: nobody waits for the brokers",
    AT_LEAST_ONCE,
)
ID_PREFIX = TableOption(
    "sink.transactional-id-prefix",
    TEXT,
    "what transactional ids, and the groups with the progress of jobs, begin with",
    "sqlstream",
)
PARTITIONER = TableOption(
    "sink.partitioner",
    _word(DEFAULT, FIXED, ROUND_ROBIN),
    f"`{DEFAULT}`: by the hash of the key, as Java's clients, without a key any; `{FIXED}`: the first one; `{ROUND_ROBIN}`",
    DEFAULT,
)
RETRY = TableOption(
    "sink.retry-timeout",
    DURATION,
    "how long a batch is tried while brokers do not answer, before that is an outage",
    "2 min",
    mutable=True,
)
ON_LOSS = TableOption(
    "sink.on-data-loss",
    _word(FAIL, CONTINUE),
    "what to do at the start when the cluster no longer has what the job wrote exactly once: `continue` writes from there on",
    FAIL,
    mutable=True,
)
PARALLELISM = TableOption(
    "sink.parallelism",
    COUNT,
    "how many writers share the rows of a batch: 1 is the driver, more are processes beside it, or tasks on Spark's workers. "
    "Unless it is set, tasks write the rows that are appended at least once, and the driver all others",
    mutable=True,
)
SINK_OPTIONS = (GUARANTEE, ID_PREFIX, PARTITIONER, RETRY, ON_LOSS, PARALLELISM)
UPSERT_SINK_OPTIONS = (GUARANTEE, ID_PREFIX, RETRY, ON_LOSS, PARALLELISM)


def word_of(table: Table, option: TableOption) -> str:
    """Return the value of an option that is one of some words, in lower case, or its default."""
    return table.options.get(option.name, option.default).lower()


def writers_of(table: Table) -> int:
    """Return the number of writers of a table (`sink.parallelism`), by default 1."""
    return int(table.options.get(PARALLELISM.name, "1"))


def retry_seconds(table: Table) -> float:
    """Return for how many seconds a batch is tried while brokers do not answer."""
    return parse_duration(table.options.get(RETRY.name, RETRY.default)) / 1_000_000


def one_topic(table: Table) -> str:
    """Return the topic that a table is written into. Raises BindError if the table has several, or its name is too long."""
    topic = table.options.get("topic", "")
    if not topic or ";" in topic:
        option = "topic" if topic else "topic-pattern"
        message = f'table "{table.name}" has several topics, and a job writes into one'
        raise BindError(message, table.option_span(option, value=True), hint="Set 'topic' to one topic.")
    if len(topic) > _LONGEST_NAME:
        message = f'table "{table.name}": a topic has a name of at most {_LONGEST_NAME} characters, not of {len(topic)}'
        raise BindError(message, table.option_span("topic", value=True))
    return topic
