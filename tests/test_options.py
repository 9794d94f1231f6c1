"""Options: names, values, what they mean."""

from __future__ import annotations

import os

import pytest

from sqlstream.errors import BindError
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
        ("execution.checkpointing.unaligned.enabled", "what it sets does not exist here"),
        ("state.backend.type", "what it sets does not exist here"),
        ("state.checkpoints.num-retained", "sqlstream.state.retention"),
        ("execution.checkpointing.num-retained", "sqlstream.state.retention"),
        ("execution.checkpointing.dir", "--warehouse"),
        ("state.savepoints.dir", "--warehouse"),
        ("execution.checkpointing.savepoint-dir", "--warehouse"),
        ("execution.savepoint.path", "sqlstream run --from"),
        ("execution.state-recovery.claim-mode", "sqlstream run --from"),
        ("execution.checkpointing.intervall", 'did you mean "execution.checkpointing.interval"?'),
        ("statement.nam", "existing options: "),
        ("execution.buffer-timeout", "execution.checkpointing.interval"),
        ("execution.buffer-timeout.interval", "execution.checkpointing.interval"),
        ("execution.runtime-mode", "ends by itself when all its tables are bounded"),
        ("table.exec.mini-batch.enabled", "every batch is a mini-batch"),
        ("table.exec.mini-batch.allow-latency", "execution.checkpointing.interval"),
        ("table.exec.mini-batch.size", "source.max-"),
        ("pipeline.max-parallelism", "parallelism.default"),
        ("pipeline.operator-chaining.enabled", "nothing to set"),
        ("pipeline.operator-chaining", "nothing to set"),
        ("high-availability.type", "sqlstream serve"),
        ("high-availability", "sqlstream serve"),
        ("high-availability.storageDir", "sqlstream serve"),
        ("queryable-state.enable", "state.<job>.<operator>"),
        ("taskmanager.numberOfTaskSlots", "spark.executor.cores"),
        ("taskmanager.memory.process.size", "sqlstream.memory"),
        ("jobmanager.memory.process.size", "spark.driver.memory"),
        ("parallelism.defualt", 'did you mean "parallelism.default"?'),
        ("execution.end-of-imput", 'did you mean "execution.end-of-input"?'),
    ],
)
def test_who_knows_flinks_options_of_state_is_told_what_there_is(key: str, hint: str) -> None:
    with pytest.raises(BindError) as error:
        Options({key: "x"})
    assert error.value.hint is not None
    assert hint in error.value.hint


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
