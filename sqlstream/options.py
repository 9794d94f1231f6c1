"""The options of a session and its jobs: `SET 'key' = 'value'`, `--set KEY=VALUE`, `Session(conf=...)`. All are listed here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlstream.errors import BindError, Span
from sqlstream.flink_settings import OTHER_NAMES, hint_for, why_without_effect
from sqlstream.names import problem
from sqlstream.units import Duration, VersionRetention, parse_duration, parse_version_retention


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its default as text, what it means, and a check that raises ValueError for an invalid value."""

    name: str
    default: str
    meaning: str
    check: Callable[[str], object]


def _whole_number(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError("needs a whole number from 1 on")
    return int(text)


def _number(*, at_least: float = 0.0, at_most: float | None = None) -> Callable[[str], object]:
    def check(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not at_least <= value <= (value if at_most is None else at_most):
            raise ValueError(f"needs a number from {at_least:g}" + (" on" if at_most is None else f" to {at_most:g}"))
        return value

    return check


def _choice(*values: str) -> Callable[[str], object]:
    def check(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"needs one of {', '.join(values)}")
        return text.lower()

    return check


def _memory(text: str) -> str:
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*(kb|mb|gb|kib|mib|gib|g|m)\s*", text.lower()) is None:
        raise ValueError("needs a size such as '512 MB' or '2 GB'")
    unit = {"g": "GB", "m": "MB"}
    return re.sub(r"([gm])\s*$", lambda m: unit[m.group(1)], text.strip().lower())


_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def memory_bytes(text: str) -> int:
    """Return a size of memory in bytes. Raises ValueError for a text that is no size.

    >>> memory_bytes("1.5 GB")
    1500000000
    """
    number, unit = re.fullmatch(r"([\d.]+)\s*([a-z]+)", _memory(text).lower()).groups()  # type: ignore[union-attr]
    return int(float(number) * _UNITS[unit])


def _zone(text: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("needs a time zone such as 'UTC' or 'Europe/Berlin'") from None
    return text


def _job_name(text: str) -> str:
    if (wrong := problem(text)) is not None:
        raise ValueError(f"the name {wrong}")
    return text


# What runs jobs.
SPARK, LOCAL = ENGINES = ("spark", "local")

_ALL = (
    Option("pipeline.name", "", "name of the next job (default: name of the table that it writes)", _job_name),
    Option(
        "parallelism.default", "", "tasks at a time, and buckets of state (default: number of cores)", _whole_number
    ),
    Option(
        "execution.engine",
        SPARK,
        "what runs a job: spark; local: this process alone, without Java, for what one machine can do",
        _choice(*ENGINES),
    ),
    Option("execution.checkpointing.interval", "0", "the least time between the starts of two batches", parse_duration),
    Option(
        "execution.checkpointing.externalized-retention",
        "DELETE_ON_CANCELLATION",
        "what `sqlstream drop` leaves: RETAIN_ON_CANCELLATION: a savepoint of the last version; "
        "DELETE_ON_CANCELLATION or NO_EXTERNALIZED_CHECKPOINTS: nothing",
        _choice("retain_on_cancellation", "delete_on_cancellation", "no_externalized_checkpoints"),
    ),
    Option(
        "execution.end-of-input",
        "finish",
        "finish: a bounded job closes its windows; wait: they stay open for the next run",
        _choice("finish", "wait"),
    ),
    Option(
        "table.exec.source.idle-timeout",
        "0",
        "a source that had no row for this long no longer holds back the watermark; 0: it always does",
        parse_duration,
    ),
    Option(
        "table.exec.state.ttl",
        "0",
        "operators drop the state of a key that had no row for this long (the watermark bounds time windows); 0: never",
        parse_duration,
    ),
    Option(
        "sqlstream.sql.division",
        "",
        "what / of two integers is: whole, a whole number as in Flink; double, a fraction as in DuckDB "
        "(default: whole, with a warning at each)",
        _choice("whole", "double"),
    ),
    Option("table.local-time-zone", "UTC", "time zone of casts between TIMESTAMP and TIMESTAMP_LTZ", _zone),
    Option(
        "restart-strategy.type",
        "",
        "whether a job starts again after an outage: none, fixed-delay, failure-rate or exponential-delay "
        "(default: none if its input ends, otherwise exponential-delay)",
        _choice("none", "fixed-delay", "failure-rate", "exponential-delay"),
    ),
    Option(
        "restart-strategy.user-code",
        "outages",
        "after which errors of your functions, sources, sinks and lookups a job starts again: outages (ConnectionError and "
        "TimeoutError) or any",
        _choice("outages", "any"),
    ),
    Option("restart-strategy.fixed-delay.attempts", "1", "fixed-delay: how many times", _whole_number),
    Option("restart-strategy.fixed-delay.delay", "1 s", "fixed-delay: how long it waits", parse_duration),
    Option(
        "restart-strategy.failure-rate.max-failures-per-interval",
        "1",
        "failure-rate: how many outages may come in an interval",
        _whole_number,
    ),
    Option(
        "restart-strategy.failure-rate.failure-rate-interval", "1 min", "failure-rate: the interval", parse_duration
    ),
    Option("restart-strategy.failure-rate.delay", "1 s", "failure-rate: how long it waits", parse_duration),
    Option(
        "restart-strategy.exponential-delay.initial-backoff", "1 s", "exponential-delay: the first wait", parse_duration
    ),
    Option(
        "restart-strategy.exponential-delay.max-backoff", "1 min", "exponential-delay: the longest wait", parse_duration
    ),
    Option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        "1.5",
        "exponential-delay: how much longer each wait is than the last",
        _number(at_least=1.0),
    ),
    Option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        "1 h",
        "exponential-delay: a job that ran for so long begins with the first wait again",
        parse_duration,
    ),
    Option(
        "restart-strategy.exponential-delay.jitter-factor",
        "0.1",
        "exponential-delay: by which part a wait may be shorter or longer",
        _number(at_most=1.0),
    ),
    Option(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        "infinite",
        "exponential-delay: how many times before the job fails",
        lambda text: text if text.lower() == "infinite" else _whole_number(text),
    ),
    Option(
        "sqlstream.state.retention",
        "1 h",
        "how long old versions can be queried: 2 h (and at least 100 batches), 500 batches, or 2 h, 500 batches for the longer",
        parse_version_retention,
    ),
    Option(
        "sqlstream.state.max-rows",
        "",
        "how many rows the state of an operator may have, with .OPERATOR behind the name that of one (default: any number)",
        _whole_number,
    ),
    Option(
        "sqlstream.state.max-rows-action",
        "stop",
        "stop or warn: what follows when a state has more rows than sqlstream.state.max-rows",
        _choice("stop", "warn"),
    ),
    Option(
        "sqlstream.unbounded-state",
        "warn",
        "warn, error or allow: what to do about an unbounded query whose state has no bound",
        _choice("warn", "error", "allow"),
    ),
    Option(
        "sql-client.execution.result-mode",
        "table",
        "table, changelog or tableau: how `sqlstream shell` shows the changes of a SELECT",
        _choice("table", "changelog", "tableau"),
    ),
    Option(
        "sql-client.execution.max-table-result.rows",
        "1000000",
        "how many rows `sqlstream shell` keeps of a SELECT in the mode table; the oldest go first",
        _whole_number,
    ),
    Option(
        "table.dml-sync",
        "false",
        "true: `sqlstream shell` waits for the job of an INSERT; false: it starts the job and goes on",
        _choice("true", "false"),
    ),
    Option(
        "sqlstream.memory",
        "1 GB",
        "DuckDB's memory in each worker process; beyond that, it spills to disk. "
        "Indexes of large state take up to a quarter as much besides",
        _memory,
    ),
)
OPTIONS: Mapping[str, Option] = {o.name: o for o in _ALL}
# The option that holds for the next job only.
JOB_NAME = "pipeline.name"
# The limit of all operators; the name of an operator behind it makes it the limit of that operator.
MAX_ROWS = "sqlstream.state.max-rows"


def stored_name(key: str) -> str:
    """Return the name of an option as it is stored: in lower case, and with our name if Flink has another name for it."""
    return key if key.startswith("spark.") else OTHER_NAMES.get(key.lower(), key.lower())


def _option(name: str) -> Option | None:
    """Return the option of a name in lower case; `MAX_ROWS.<operator>` is MAX_ROWS, too. None for a name that does not exist."""
    return OPTIONS.get(MAX_ROWS if name.removeprefix(f"{MAX_ROWS}.") not in ("", name) else name)


def _no_option(key: str, span: Span | None, value: str = "", value_span: Span | None = None) -> BindError:
    if why_without_effect(stored_name(key), None) is not None:
        message = f'option "{key}" cannot be "{value}": results would be others'
        return BindError(message, value_span, hint=hint_for(key, OPTIONS))
    return BindError(f'option "{key}" does not exist', span, hint=hint_for(key, OPTIONS))


class Options:
    """The values of options, by name. An option whose name begins with `spark.` is passed to Spark."""

    def __init__(self, values: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None):
        """Start with these values, to which RESET returns; `files` says where in a file an option is set, by its name."""
        self.values: dict[str, str] = {}
        # Names of the options that SET does not change.
        self._fixed: set[str] = set()
        self._files = files or {}
        # Names of the options that a statement has set.
        self._stated: set[str] = set()
        # Options of Flink that were set and have no effect, with the reason.
        self.ignored: dict[str, str] = {}
        for key, value in (values or {}).items():
            self.set(key, value)
        # The values that RESET restores.
        self._initial = dict(self.values)

    def fix(self, keys: Iterable[str]) -> None:
        """Fix some options at their present values: SET statements do not change them from now on."""
        self._fixed |= set(map(stored_name, keys))

    def set(self, key: str, value: str, span: Span | None = None, value_span: Span | None = None) -> bool:
        """Set an option. Return whether it has this value now: a fixed option keeps its own.

        An option of Flink that needs nothing is only added to `ignored`. Raises BindError if the option does not exist or the
        value is invalid.
        """
        name = stored_name(key)
        if not name.startswith("spark."):
            if _option(name) is None and (why := why_without_effect(name, value)) is not None:
                self.ignored[name] = why
                if span is not None:
                    self._stated.add(name)
                return True
            if (option := _option(name)) is None:
                raise _no_option(key, span, value, value_span)
            try:
                option.check(value)
            except ValueError as e:
                raise BindError(f'option "{key}": {e}', value_span) from None
        if name in self._fixed:
            return self.values[name] == value
        self.values[name] = value
        if span is not None:
            self._stated.add(name)
        return True

    def take_job_name(self) -> None:
        """Remove `pipeline.name`, even if it is fixed. It is for one job only: the next job needs another name."""
        for values in (self.values, self._initial):
            values.pop(JOB_NAME, None)
        self._fixed.discard(JOB_NAME)

    def reset(self, key: str | None, span: Span | None = None) -> None:
        """Restore the first value of an option, or of all options if `key` is None. Raises BindError for an unknown option."""
        if key is None:
            self.values = dict(self._initial)
            self._stated.clear()
            return
        name = stored_name(key)
        if self.ignored.pop(name, None) is not None:
            return
        if not name.startswith("spark.") and _option(name) is None and why_without_effect(name, None) is None:
            raise _no_option(key, span)
        self.values.pop(name, None)
        self._stated.discard(name)
        if name in self._initial:
            self.values[name] = self._initial[name]

    def copy(self) -> Options:
        """Return a copy in which no option is fixed, and RESET restores the defaults."""
        copied = Options(files=self._files)
        copied.values, copied._stated = dict(self.values), set(self._stated)
        return copied

    def as_set(self, name: str) -> str:
        """Return how the value of an option was set, for a hint about how to change it.

        >>> Options({"sqlstream.memory": "1 GB"}).as_set("sqlstream.memory")
        '--set sqlstream.memory'
        """
        if name in self._stated:
            return f"SET '{name}'"
        return f'"{name}" in {self._files[name]}' if name in self._files else f"--set {name}"

    def text(self, name: str) -> str:
        """Return the value of an option as text, or its default. Raises KeyError for an option that is not in OPTIONS."""
        return self.values.get(name, OPTIONS[name].default)

    def duration(self, name: str) -> Duration:
        """Return the value of an option in microseconds."""
        return parse_duration(self.text(name))

    @property
    def retention(self) -> VersionRetention:
        return parse_version_retention(self.text("sqlstream.state.retention"))

    def max_rows(self, operators: Iterable[str]) -> dict[str, int]:
        """Return the limit of rows of each operator that has one: its own limit, or the limit of all operators."""
        limits = {name: self.values.get(f"{MAX_ROWS}.{name.lower()}") or self.text(MAX_ROWS) for name in operators}
        return {name: int(most) for name, most in limits.items() if most}

    def max_rows_as_set(self, operators: Iterable[str]) -> dict[str, str]:
        """Return how the limit of each operator that has one was set; see `as_set`."""
        own = {name: f"{MAX_ROWS}.{name.lower()}" for name in self.max_rows(operators)}
        return {name: self.as_set(key if key in self.values else MAX_ROWS) for name, key in own.items()}

    def limited(self) -> list[str]:
        """Return the names, in lower case, of the operators with a limit of their own."""
        return [key.removeprefix(f"{MAX_ROWS}.") for key in self.values if key.startswith(f"{MAX_ROWS}.")]

    @property
    def without_effect(self) -> Mapping[str, str]:
        """Flink's options that have no effect here, without those of statements: how each was set (`as_set`), and why."""
        return {self.as_set(name): why for name, why in self.ignored.items() if name not in self._stated}

    @property
    def fixed(self) -> Mapping[str, str]:
        """The options that SET does not change, with their values."""
        return {name: value for name, value in self.values.items() if name in self._fixed}

    def listed(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield (name, value, default) of each option, then of the Spark options and operator limits that are set."""
        for option in _ALL:
            yield option.name, self.text(option.name), option.default
        for name in sorted(self.values.keys() - OPTIONS.keys()):
            yield name, self.values[name], None

    @property
    def parallelism(self) -> int:
        value = self.text("parallelism.default")
        return int(value) if value else os.cpu_count() or 1

    @property
    def is_local(self) -> bool:
        """Whether jobs run in this process, without Spark."""
        return self.text("execution.engine").lower() == LOCAL

    @property
    def retains_state(self) -> bool:
        """Whether a dropped job leaves a savepoint of its last version."""
        return self.text("execution.checkpointing.externalized-retention").lower() == "retain_on_cancellation"

    @property
    def memory(self) -> str:
        return _memory(self.text("sqlstream.memory"))

    @property
    def finish(self) -> bool:
        """Whether all windows close when bounded input ends."""
        return self.text("execution.end-of-input").lower() == "finish"

    @property
    def spark(self) -> dict[str, str]:
        return {k: v for k, v in self.values.items() if k.startswith("spark.")}
