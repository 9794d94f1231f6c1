"""The scenarios: each kills the processes of a job so often, and says what came out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import duckdb

from sqlstream.warehouse.status import DRAINED
from tests.forked import Forked
from tests.processes import SECONDS, kill_group, wait_until
from tests.proof.savepoints.step import LOCAL
from tests.proof.scenarios.command import CLOCK
from tests.proof.scenarios.memory import LARGE_STATE, outgrow_memory
from tests.proof.scenarios.runs import Answers, ProofError, ScenarioProject
from tests.proof.scenarios.work import ARRIVAL, CHANGES, FUNCTION, PROCESSING_TIME, WINDOWS, Work, stored

_ROWS_OF_A_FILE = 20
_HOURS = 5 * 3600


def kill_often(project: ScenarioProject, kills: int) -> str:
    """Kill the job so often, each time after a batch, and let it read all in the end."""
    for _ in range(kills):
        project.kill(project.start_job())
    project.finish()
    project.check()
    return f"{project.rows.count:,} rows, DuckDB's answer"


def kill_writers(database: str, project: ScenarioProject, kills: int) -> str:
    """Kill a job that writes into the file of a database, and look after each kill whether whole batches are in it."""
    read = partial(read_database, project.folder / f"out.{database}")
    for _ in range(kills):
        project.kill(project.start_job())
        [(rows, different)] = read("SELECT count(*), count(DISTINCT id) FROM db.rows")
        if rows != different or rows % _ROWS_OF_A_FILE:
            raise ProofError(f"after a kill {rows} rows, {different} different ones, are not those of whole batches")
    project.finish()
    project.check(read=read)
    return f"{project.rows.count:,} rows, each once; after each kill whole batches"


def read_database(file: Path, sql: str) -> Answers:
    """Return what a query finds in a file of SQLite or DuckDB, which it calls `db`."""
    connect: Callable[[], Any] = duckdb.connect if file.suffix == ".duckdb" else partial(sqlite3.connect, ":memory:")
    with closing(connect()) as con:
        con.execute(f"ATTACH '{file}' AS db")
        rows: Answers = con.execute(sql).fetchall()
        return rows


def kill_upgrades(project: ScenarioProject, kills: int) -> str:
    """Start the job with another query each time, which means the same, and kill it after a batch."""
    for number in range(kills):
        project.write("job.sql", project.work.text(form=f" + {number % 2} - {number % 2}" if number % 3 else ""))
        project.kill(project.start_job("--upgrade", "--yes"))
    project.finish("--upgrade", "--yes")
    project.check()
    return f"{project.rows.count:,} rows, DuckDB's answer"


def kill_savepoints(project: ScenarioProject, kills: int) -> str:
    """Kill the job while a savepoint is taken, after it has gone back to one, and its forks, in turn."""
    begun = project.start_job()
    project.await_batches(begun)
    project.run("savepoint", "job", "first")
    kill_group(begun)
    for number in range(kills):
        match number % 3:
            case 0:
                _kill_in_savepoint(project, f"s{number}")
            case 1:
                project.kill(project.start_job("--from", "first"))
            case _:
                _kill_fork(project, f"fork_{number}")
    project.finish()
    project.check()
    return f"{project.rows.count:,} rows, DuckDB's answer, also in forks; savepoints whole or not there"


def _kill_in_savepoint(project: ScenarioProject, name: str) -> None:
    taking: list[Forked] = []
    project.kill(project.start_job(), meanwhile=lambda: taking.append(project.start("savepoint", "job", name)))
    kill_group(taking[0])
    if name in project.warehouse.savepoints():
        project.query(f"FROM out AT (SAVEPOINT => '{name}')")


def _kill_fork(project: ScenarioProject, name: str) -> None:
    project.write("fork.sql", project.work.text(out=name))
    project.kill(project.start_job("--from", "first", "--as", name, script="fork.sql"), job=name)
    project.finish("--set", f"pipeline.name={name}", script="fork.sql")
    project.check(out=name)


def kill_drains(project: ScenarioProject, kills: int) -> str:
    """Kill a job that drains, a new one each time, and drain it once more: it closes all windows of what it has read."""
    done = before = 0
    while done < kills:
        one = ScenarioProject(project.folder / f"drain-{done}-{before}", project.work, done + before, project.engine)
        project.parts.append(one)
        if _killed_in_drain(one):
            done += 1
        elif (before := before + 1) > 20 * kills:
            raise ProofError(f"only {done} of {kills} processes were killed before they had drained")
    project.kills = project.busy = done
    return f"all windows of the rows that were read; {before} more had drained before their kill"


def _killed_in_drain(project: ScenarioProject) -> bool:
    process = project.start_job()
    project.await_batches(process)
    project.rows.put(16)
    stopping = project.start("stop", "job", "--drain")
    paths = project.warehouse.job("job")
    wait_until(lambda: project.warehouse.fs.exists(paths.stop) or process.poll() is not None)
    with suppress(TimeoutExpired):
        process.wait(project.random.uniform(0, 0.1))
    killed = process.poll() is None
    kill_group(process)
    stopping.communicate(timeout=SECONDS)
    if _state(project) != DRAINED:
        _drain(project)
    if _state(project) != DRAINED:
        raise ProofError(f"the job is {_state(project)}, and not drained")
    count = project.rows_in()
    if count % _ROWS_OF_A_FILE:
        raise ProofError(f"{count} rows are not those of whole files")
    project.rows.rows["t"] = project.rows.rows["t"][:count]
    project.check()
    return killed


def _drain(project: ScenarioProject) -> None:
    process = project.start_job()
    wait_until(lambda: process.poll() is not None or _is_run_by(project, process))
    try:
        project.run("stop", "job", "--drain")
    except ProofError:
        # One that was killed between its last commit and its end has ended by itself.
        if _state(project) != DRAINED:
            raise
    process.communicate(timeout=SECONDS)


def _is_run_by(project: ScenarioProject, process: Forked) -> bool:
    status = project.status()
    return status is not None and status.pid == process.pid


def _state(project: ScenarioProject) -> str | None:
    status = project.status()
    return None if status is None else status.state


def start_twice(project: ScenarioProject, kills: int) -> str:
    """Start the job twice at once: one process runs it, the other says so; kill that which runs it."""
    for _ in range(kills):
        both = [project.start_job(), project.start_job()]
        wait_until(lambda both=both: any(one.poll() is not None for one in both))
        [refused] = [one for one in both if one.poll() is not None]
        said, _ = refused.communicate()
        if refused.returncode == 0 or "is being run by process" not in said:
            raise ProofError(f"the second start ended with {refused.returncode}: {said}")
        both.remove(refused)
        project.kill(both[0])
    project.finish()
    project.check()
    return f"one ran and one was refused each time; {project.rows.count:,} rows, DuckDB's answer"


def jump_clock(project: ScenarioProject, kills: int) -> str:
    """Let the clock jump by five hours while the job runs, and between its processes, and kill it."""
    if project.engine != LOCAL:
        raise ProofError("the clock of jobs on Spark cannot be set: leave out --spark")
    offsets = (0, _HOURS, 0, -_HOURS)
    clock = project.folder / CLOCK
    clock.write_text("0")

    def jump(number: int) -> None:
        making = clock.with_suffix(".next")
        making.write_text(str(offsets[number % len(offsets)]))
        making.rename(clock)

    for number in range(kills):
        process = project.start_job()
        project.await_batches(process)
        jump(number + 1)
        project.kill(process)
    clock.write_text("0")
    project.finish()
    project.check()
    return f"{project.rows.count:,} rows, DuckDB's answer"


Trial = Callable[[ScenarioProject, int], str]
SCENARIOS: Mapping[str, tuple[Work, Trial]] = {
    "changes": (CHANGES, kill_often),
    "arrival": (ARRIVAL, kill_often),
    "function": (FUNCTION, kill_often),
    "sqlite": (stored("sqlite"), partial(kill_writers, "sqlite")),
    "duckdb": (stored("duckdb"), partial(kill_writers, "duckdb")),
    "upgrade": (WINDOWS, kill_upgrades),
    "savepoints": (WINDOWS, kill_savepoints),
    "drain": (WINDOWS, kill_drains),
    "starts": (WINDOWS, start_twice),
    "clock": (WINDOWS, jump_clock),
    "clock of windows": (PROCESSING_TIME, jump_clock),
    "memory": (LARGE_STATE, outgrow_memory),
}
