"""Options of Flink's configuration, as `SET` has them: which have no effect here, and what to write instead of others.

An option without an effect is accepted with a notice: sqlstream always works as it asks, or does not need it. An option that
would change results, and one that is not listed, is an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

# Options that Flink, or an earlier version of it, calls by another name.
OTHER_NAMES = {
    "execution.checkpointing.externalized-checkpoint-retention": "execution.checkpointing.externalized-retention",
    "parallelism": "parallelism.default",
    "execution.parallelism": "parallelism.default",
    "table.exec.resource.default-parallelism": "parallelism.default",
    "restart-strategy": "restart-strategy.type",
}


@dataclass(frozen=True, slots=True)
class FlinkSetting:
    """An option of Flink without an effect here. `why` is the end of the notice's sentence about it.

    A `*` at the end of `name` stands for any text. `values` are the values without an effect, in lower case; empty: all values.
    """

    name: str
    why: str
    values: tuple[str, ...] = ()

    def covers(self, name: str) -> bool:
        """Whether this is the option of a name."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


_BATCHES = "every batch is a mini-batch; execution.checkpointing.interval is the least time between the starts of two"
_CHECKPOINTS = "every batch is a checkpoint, and exactly once; see sqlstream docs concepts/checkpoints"
_IN_WAREHOUSE = "state and savepoints are in the warehouse: --warehouse"
_MEMORY = "sqlstream.memory is DuckDB's, spark.driver.memory and spark.executor.memory are the JVMs'"
_TASKS = "tasks are Spark's: parallelism.default, spark.executor.cores, spark.cores.max; see sqlstream docs operations/clusters"
_PLANNER = "plans are made by sqlstream's rules, and results are the same"
_JAVA = "there are no Java classes: functions are in Python, under udfs/"
SETTINGS: tuple[FlinkSetting, ...] = (
    FlinkSetting(
        "execution.runtime-mode",
        "a job ends by itself when all its tables are bounded; a table with source.monitor-interval is not",
    ),
    FlinkSetting("execution.type", "a job ends by itself when all its tables are bounded"),
    FlinkSetting("execution.planner", _PLANNER),
    FlinkSetting("execution.target", "jobs run in the process that starts them, or in a server: sqlstream serve"),
    FlinkSetting("execution.attached", "sqlstream run waits for its jobs"),
    FlinkSetting("execution.buffer-timeout*", "rows leave with their batch: execution.checkpointing.interval"),
    FlinkSetting(
        "table.exec.mini-batch.size",
        "a batch is a mini-batch; source.max-bytes-per-batch of a table or scan.max-rows-per-batch of a topic bounds it",
    ),
    FlinkSetting("table.exec.mini-batch.*", _BATCHES),
    FlinkSetting(
        "table.exec.sink.upsert-materialize",
        "a table with a PRIMARY KEY has the last row of each key, whatever came between",
    ),
    FlinkSetting(
        "table.exec.sink.keyed-shuffle", "a table with a PRIMARY KEY has the last row of each key, whatever it is"
    ),
    FlinkSetting("table.exec.sink.not-null-enforcer", "a NULL in a column that is NOT NULL is an error", ("error",)),
    FlinkSetting("table.exec.legacy-cast-behaviour", "there is one kind of CAST", ("disabled",)),
    FlinkSetting("table.exec.async-lookup.*", "the keys of a batch are looked up together"),
    FlinkSetting("table.exec.async-state.*", "the state of a batch is read and written together"),
    FlinkSetting("table.exec.spill-compression.*", "DuckDB spills to disk by itself"),
    FlinkSetting("table.exec.uid.*", "operators have names: SELECT /*+ UID('name') */"),
    FlinkSetting("table.optimizer.*", _PLANNER),
    FlinkSetting("table.planner", _PLANNER),
    FlinkSetting("table.generated-code.*", "no code is generated"),
    FlinkSetting("table.dynamic-table-options.enabled", "the hint OPTIONS is always there", ("true",)),
    FlinkSetting("table.sql-dialect", "there is one dialect", ("default",)),
    FlinkSetting("pipeline.auto-watermark-interval", "watermarks move with each batch"),
    FlinkSetting("pipeline.time-characteristic", "a watermark of a table makes the time of an event count"),
    FlinkSetting("pipeline.max-parallelism", "there is no maximum: parallelism.default may change at each start"),
    FlinkSetting(
        "pipeline.operator-chaining*",
        "there is nothing to set: what is between two operators with state is one statement",
    ),
    FlinkSetting("pipeline.object-reuse", "rows are no Java objects"),
    FlinkSetting("pipeline.jars", _JAVA),
    FlinkSetting("pipeline.classpaths", _JAVA),
    FlinkSetting("execution.checkpointing.mode", _CHECKPOINTS, ("exactly_once", "at_least_once")),
    FlinkSetting("execution.checkpointing.timeout", _CHECKPOINTS),
    FlinkSetting("execution.checkpointing.min-pause", _CHECKPOINTS),
    FlinkSetting("execution.checkpointing.max-concurrent-checkpoints", _CHECKPOINTS),
    FlinkSetting("execution.checkpointing.tolerable-failed-checkpoints", _CHECKPOINTS),
    FlinkSetting("execution.checkpointing.unaligned*", _CHECKPOINTS),
    FlinkSetting("execution.checkpointing.incremental", "only what changed is stored in each batch"),
    FlinkSetting("execution.checkpointing.dir", _IN_WAREHOUSE),
    FlinkSetting("execution.checkpointing.savepoint-dir", _IN_WAREHOUSE),
    FlinkSetting("execution.checkpointing.storage", _IN_WAREHOUSE),
    FlinkSetting("execution.checkpointing.num-retained", "sqlstream.state.retention says how long versions stay"),
    FlinkSetting("state.checkpoints.num-retained", "sqlstream.state.retention says how long versions stay"),
    FlinkSetting("state.checkpoints.*", _IN_WAREHOUSE),
    FlinkSetting("state.checkpoint-storage", _IN_WAREHOUSE),
    FlinkSetting("state.savepoints.*", _IN_WAREHOUSE),
    FlinkSetting("state.backend*", "every state is a table in the warehouse; see sqlstream docs concepts/state"),
    FlinkSetting("high-availability*", "a second `sqlstream serve` on the warehouse is a standby, which takes over"),
    FlinkSetting(
        "queryable-state.*", "all state can be queried, as state.<job>.<operator>; see sqlstream docs state-queries"
    ),
    FlinkSetting("taskmanager.memory.*", _MEMORY),
    FlinkSetting("jobmanager.memory.*", _MEMORY),
    FlinkSetting("taskmanager.*", _TASKS),
    FlinkSetting("jobmanager.*", _TASKS),
    FlinkSetting("rest.*", "`sqlstream serve` is the server; see sqlstream docs operations/server"),
    FlinkSetting("metrics.*", "metrics are at --metrics-port; see sqlstream docs operations/metrics"),
    FlinkSetting("python.execution-mode", "Python functions run in the worker processes"),
    FlinkSetting("python.fn-execution.*", "Python functions take the rows of a batch as Arrow arrays"),
    FlinkSetting("sql-client.display.*", "the shell fits columns to the terminal"),
    FlinkSetting("sql-client.verbose", "errors have a place and a hint; --debug adds tracebacks"),
)
# Options that would change results, and what to write instead; the first match counts.
_INSTEAD = (
    (
        r"execution\.(savepoint|state-recovery)\.",
        "`sqlstream run --from` lets a job go on from a savepoint; see sqlstream docs concepts/checkpoints",
    ),
    (r"table\.exec\.emit\.early-fire", "write SELECT /*+ EARLY_FIRE('10 s') */ ..; see sqlstream docs sql/windows"),
    (
        r"table\.exec\.emit\.(late-fire|allow-lateness)",
        "write SELECT /*+ ALLOWED_LATENESS('1 min') */ ..; see sqlstream docs sql/windows",
    ),
    (
        r"table\.exec\.source\.cdc-events-duplicate",
        "declare PRIMARY KEY (..) NOT ENFORCED: a row replaces the last of its key",
    ),
    (r"table\.exec\.sink\.not-null-enforcer", "filter the rows: WHERE column IS NOT NULL"),
    (r"table\.exec\.legacy-cast-behaviour", "write TRY_CAST where a value may not fit"),
    (r"table\.sql-dialect", "write the statement in the dialect of Flink"),
    (
        r"python\.(files|archives|requirements|executable|client)",
        "functions are under udfs/; see sqlstream docs python/functions",
    ),
    (
        r"(execution\.checkpointing|state)[.-]",
        "what it sets does not exist here; see sqlstream docs concepts/checkpoints",
    ),
)
# The beginning of `TABLE.OPTION`, which sets an option of a table.
_OF_TABLE = re.compile(r"(?!spark\.)[^.]+\.(scan|source|sink|properties|lookup)\.")


def why_without_effect(name: str, value: str | None) -> str | None:
    """Return why an option of Flink has no effect here; None if it has one, or is not listed. The name is in lower case.

    >>> why_without_effect("table.optimizer.join-reorder-enabled", "true")
    "plans are made by sqlstream's rules, and results are the same"
    >>> why_without_effect("table.exec.sink.not-null-enforcer", "DROP")
    """
    setting = next((setting for setting in SETTINGS if setting.covers(name)), None)
    if setting is None or (value is not None and setting.values and value.lower() not in setting.values):
        return None
    return setting.why


def hint_for(key: str, existing: Collection[str]) -> str:
    """Return the hint about an option that does not exist: what to write instead, or the existing option that was meant.

    >>> hint_for("execution.checkpointing.intervall", ["execution.checkpointing.interval"])
    'did you mean "execution.checkpointing.interval"?'
    >>> hint_for("table.exec.mini-bach.enabled", ["table.exec.state.ttl"])
    'SET without a name lists the options that there are; see sqlstream docs operations/options'
    >>> hint_for("orders.scan.startup.mode", [])
    'an option of a table stands in its WITH; --set-table orders.scan.startup.mode=VALUE goes over it'
    """
    name = key.lower()
    if meant := next((option for option in _near(name, existing)), None):
        return f'did you mean "{meant}"?'
    if instead := next((text for pattern, text in _INSTEAD if re.match(pattern, name)), None):
        return instead
    if _OF_TABLE.match(name):
        return f"an option of a table stands in its WITH; --set-table {key}=VALUE goes over it"
    return "SET without a name lists the options that there are; see sqlstream docs operations/options"


def _near(name: str, existing: Collection[str]) -> Iterator[str]:
    """Yield the options that a wrong name may mean: each part of the name is similar, or the name is the end of the option's.

    Parts are compared, not whole names: many options have similar names, but are about other things.
    """
    parts = name.split(".")
    for option in existing:
        others = option.split(".")
        if (len(parts) == len(others) and all(map(_alike, parts, others))) or option.endswith(f".{name}"):
            yield option


def _alike(part: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, part, other).ratio() >= (0.6 if len(other) <= 4 else 0.75)


def reference() -> Iterator[str]:
    """Yield the lines of the manual's table of these options, as Markdown."""
    yield from ("| option | values | |", "|---|---|---|")
    for name, other in OTHER_NAMES.items():
        yield f"| `{name}` | any | the same as `{other}` |"
    for setting in SETTINGS:
        values = ", ".join(f"`{value}`" for value in setting.values) or "any"
        yield f"| `{setting.name}` | {values} | {setting.why} |"
