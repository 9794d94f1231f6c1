"""Options: names, values, what they mean."""

from __future__ import annotations

import os

import pytest

from sqlstream.errors import BindError
from sqlstream.flink_settings import SETTINGS, why_without_effect
from sqlstream.options import OPTIONS, Options
from sqlstream.units import MILLISECOND, SECOND, parse_duration


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pipeline.nam", "x", 'option "pipeline.nam" does not exist'),
        ("parallelism.default", "0", "needs a whole number from 1 on"),
        ("parallelism.default", "-1", "needs a whole number from 1 on"),
        ("parallelism.default", "1.5", "needs a whole number from 1 on"),
        ("execution.checkpointing.interval", "soon", "is not a duration"),
        ("execution.end-of-input", "stop", "needs one of finish, wait"),
        ("table.local-time-zone", "Mars/Olympus", "needs a time zone"),
        ("table.local-time-zone", "UTC'; DROP", "needs a time zone"),
        ("sqlstream.state.retention", "-1 h", "is not a duration"),
        ("sqlstream.state.retention", "500", "is not a duration"),
        ("sqlstream.state.retention", "500, 20 batches", "is not a duration"),
        ("sqlstream.state.retention", "9 batches", "from 10 to"),
        ("sqlstream.state.retention", "1 h, 2 h", "is not a duration"),
        ("sqlstream.state.retention", "x, 20 batches", "is not a duration"),
        ("sqlstream.memory", "a lot", "needs a size"),
        ("pipeline.name", "..", "the name is a folder of its own on disk"),
        ("pipeline.name", "a\nb", "the name has a control character in it"),
        (
            "pipeline.name",
            "注文" * 15,
            "the name is too long: 270 bytes as the name of a folder, where there can be 240",
        ),
        ("pipeline.name", "  ", "the name is empty"),
    ],
)
def test_what_an_option_cannot_be(key: str, value: str, message: str) -> None:
    with pytest.raises(BindError) as error:
        Options({key: value})
    assert message in error.value.message


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("execution.savepoint.path", "sqlstream run --from"),
        ("execution.state-recovery.claim-mode", "sqlstream run --from"),
        ("execution.checkpointing.intervall", 'did you mean "execution.checkpointing.interval"?'),
        ("execution.checkpointing.write-buffer", "what it sets does not exist here"),
        ("state.ttl", 'did you mean "table.exec.state.ttl"?'),
        ("table.exec.state.tll", 'did you mean "table.exec.state.ttl"?'),
        ("statement.nam", "SET without a name lists the options that there are"),
        ("table.exec.emit.early-fire.enabled", "EARLY_FIRE"),
        ("table.exec.emit.allow-lateness", "ALLOWED_LATENESS"),
        ("table.exec.legacy-cast-behaviour", "TRY_CAST"),
        ("table.exec.sink.not-null-enforcer", "IS NOT NULL"),
        ("table.sql-dialect", "dialect of Flink"),
        ("python.files", "udfs/"),
        ("parallelism.defualt", 'did you mean "parallelism.default"?'),
        ("execution.end-of-imput", 'did you mean "execution.end-of-input"?'),
    ],
)
def test_who_sets_an_option_that_does_not_exist_is_told_what_there_is(key: str, hint: str) -> None:
    with pytest.raises(BindError) as error:
        Options({key: "x"})
    assert error.value.hint is not None
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("execution.checkpointing.unaligned.enabled", "true", "every batch is a checkpoint"),
        ("execution.checkpointing.mode", "EXACTLY_ONCE", "every batch is a checkpoint"),
        ("state.backend.type", "rocksdb", "a table in the warehouse"),
        ("state.backend", "hashmap", "a table in the warehouse"),
        ("state.checkpoints.num-retained", "3", "sqlstream.state.retention"),
        ("state.checkpoints.dir", "s3://b/c", "--warehouse"),
        ("execution.buffer-timeout", "1 s", "execution.checkpointing.interval"),
        ("execution.buffer-timeout.interval", "1 s", "execution.checkpointing.interval"),
        ("execution.runtime-mode", "streaming", "ends by itself when all its tables are bounded"),
        ("table.exec.mini-batch.enabled", "true", "every batch is a mini-batch"),
        ("TABLE.EXEC.MINI-BATCH.ALLOW-LATENCY", "1 s", "execution.checkpointing.interval"),
        ("table.exec.mini-batch.size", "5000", "source.max-"),
        ("table.exec.sink.upsert-materialize", "NONE", "last row of each key"),
        ("table.exec.sink.not-null-enforcer", "ERROR", "is an error"),
        ("table.optimizer.agg-phase-strategy", "TWO_PHASE", "results are the same"),
        ("pipeline.auto-watermark-interval", "200", "each batch"),
        ("pipeline.max-parallelism", "128", "parallelism.default"),
        ("pipeline.operator-chaining.enabled", "false", "nothing to set"),
        ("high-availability.storageDir", "x", "sqlstream serve"),
        ("high-availability", "zookeeper", "sqlstream serve"),
        ("queryable-state.enable", "true", "state.<job>.<operator>"),
        ("taskmanager.numberOfTaskSlots", "4", "spark.executor.cores"),
        ("jobmanager.memory.process.size", "1 g", "spark.driver.memory"),
    ],
)
def test_an_option_of_flink_without_an_effect_is_accepted(key: str, value: str, reason: str) -> None:
    options = Options({key: value})
    assert reason in options.ignored[key.lower()]
    assert options.values == {}
    assert [reason in why for why in options.without_effect.values()] == [True]
    options.reset(key)
    assert options.ignored == {}


def test_every_option_without_an_effect_is_none_of_ours() -> None:
    for name in OPTIONS:
        assert why_without_effect(name, None) is None, name
    for setting in SETTINGS:
        example = setting.name.replace("*", "x")
        values = setting.values or ("1",)
        assert [why_without_effect(example, value) for value in values] == [setting.why] * len(values), setting.name


def test_options_that_flink_calls_otherwise() -> None:
    assert Options({"parallelism": "3"}).parallelism == 3
    assert Options({"table.exec.resource.default-parallelism": "3"}).parallelism == 3
    assert Options({"restart-strategy": "fixed-delay"}).text("restart-strategy.type") == "fixed-delay"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("500 ms", 500),
        ("1 s", 1000),
        ("1.5s", 1500),
        ("2 MIN", 120_000),
        ("1 h", 3_600_000),
        ("1 d", 86_400_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    options = Options({"sqlstream.state.retention": text})
    assert options.retention == (milliseconds * MILLISECOND, 100)


@pytest.mark.parametrize("name", [o.name for o in OPTIONS.values() if o.check is parse_duration])
def test_a_duration_without_a_unit_counts_milliseconds_as_in_flink(name: str) -> None:
    assert Options({name: "1000"}).duration(name) == SECOND


@pytest.mark.parametrize(
    ("text", "seconds", "batches"), [("500 batches", 0, 500), ("2 h,20 Batches", 7200, 20), ("1 s, 10 batches", 1, 10)]
)
def test_retention_in_batches(text: str, seconds: int, batches: int) -> None:
    assert Options({"sqlstream.state.retention": text}).retention == (seconds * SECOND, batches)


@pytest.mark.parametrize(
    ("text", "memory"), [("512 MB", "512 mb"), ("2g", "2GB"), ("1.5 GiB", "1.5 gib"), ("800m", "800MB")]
)
def test_sizes_are_written_as_duckdb_reads_them(text: str, memory: str) -> None:
    assert Options({"sqlstream.memory": text}).memory == memory


def test_defaults() -> None:
    options = Options()
    assert options.parallelism == (os.cpu_count() or 1)
    assert options.finish
    assert options.retention == (3600 * SECOND, 100)
    assert options.text("pipeline.name") == ""
    for option in OPTIONS.values():
        if option.default:
            option.check(option.default)


def test_case_does_not_matter_in_names_and_spark_passes_through() -> None:
    options = Options({"Parallelism.Default": "3", "spark.sql.X": "y", "EXECUTION.END-OF-INPUT": "WAIT"})
    assert options.parallelism == 3
    assert not options.finish
    assert options.spark == {"spark.sql.X": "y"}


def test_a_copy_is_its_own() -> None:
    options = Options({"parallelism.default": "3"})
    copy = options.copy()
    options.set("parallelism.default", "4")
    assert copy.parallelism == 3


def test_a_fixed_option_keeps_its_value_and_a_name_is_for_one_job() -> None:
    options = Options({"parallelism.default": "8", "pipeline.name": "a"})
    options.fix(["PARALLELISM.default", "pipeline.name"])
    assert not options.set("parallelism.default", "2")
    assert options.set("Parallelism.Default", "8")
    assert options.parallelism == 8
    with pytest.raises(BindError, match="needs a whole number"):
        options.set("parallelism.default", "0")
    options.take_job_name()
    options.reset(None)
    assert options.text("pipeline.name") == ""
    assert options.set("pipeline.name", "b")
    assert options.text("pipeline.name") == "b"
