"""Runs a page of the manual from top to bottom, as its reader would, and compares what comes out with what the page shows.

What a block is stands in the words behind its fence; readers see only the block.

    sql                 statements: tables, views, jobs
    sql query           a state query; the `text` block that follows shows its rows
    sql error           statements that are refused; the `text` block shows the error
    sql explain         a query; the `text` block shows its plan
    csv TABLE           rows that arrive in a table, as one micro-batch; the first line has the columns. A `text` block right
                        below shows what sinks print
    json TABLE          the same, a JSON object per line
    json in/1.json      a file of the project (also csv, sql, proto, ..)
    python              runs; a `text` block right below shows what it prints. `# udfs/f.py` in its first line makes it that file
    console             commands behind `$ `, and what they print
    sh                  commands that are not run: their options must exist
    text                what came out. `text sketch` is no output
    ini, dockerfile     files for other programs, which are only shown
    python spark        on pages that run without Spark, code that is only compiled
    toml                the entry points of a package, which is installed: its modules are files of the project

A block of SQL whose first line is `-- file.sql` is that file, too. A comment `<!-- run: VERB .. -->` moves time: `advance
MILLISECONDS`, `tick TABLE TIME`, `finish`, `restart`, `read` (a batch of each source that feeds itself), `files` (the files
that tables with the connector `filesystem` find, which are not read otherwise), `checks` (jobs look at their state checks, as
they do by themselves behind each batch), `upgrade FILE` (the job of the file goes on with the query that it has there, as
`run --upgrade --yes` lets it), `restore JOB SAVEPOINT` (the job goes back, with the query that it had then; what it would
read again is not fed again). `<!-- run: printed -->` is what the last bare SELECT, or INSERT into a `print` table, has
printed: the `text` block that follows shows it. `<!-- run: spark -->` runs a page's commands with Spark, and a page with
`<!-- run: kafka -->` finds a broker at `KAFKA_SERVERS`. `<!-- run: server -->` starts the server of the project, which the
page knows as `http://127.0.0.1:8642`.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sqlstream.cli.main import cli
from sqlstream.compiler.compiler import Explanation
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors import registry
from sqlstream.errors import JobError, SourceText, SqlStreamError
from sqlstream.functions import load
from sqlstream.jobs.identity import is_planned
from sqlstream.jobs.launch import job_spec
from sqlstream.jobs.upgrades.upgrading import Upgrade, Upgrader
from sqlstream.local.stepped import SteppedRun
from sqlstream.project import find_project
from sqlstream.runtime.state_checks import StateChecks
from sqlstream.runtime.worker import release
from sqlstream.session.explaining import explained
from sqlstream.session.project_query import open_project_query
from sqlstream.session.rendering import write_table
from sqlstream.session.session import Session
from sqlstream.session.verifying import existing_record
from sqlstream.sql.statements import parse_script
from sqlstream.testing import Stream
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import find_savepoint
from tests.docs.mysql import shown_by_mysql
from tests.docs.psql import shown_by_psql
from tests.mariadb_server import MySQLDatabase
from tests.postgres_server import Database
from tests.saved_streams import SavedStream

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "sqlstream" / "docs"
README = ROOT / "README.md"
SERVER = "http://127.0.0.1:8642"

_FENCE = re.compile(r"^```(.*)$")
_DIRECTIVE = re.compile(r"^<!-- run: (.*) -->$")
_FILE = re.compile(r"^(?:--|#) ([\w./-]+\.(?:sql|py))\b")
# What `sqlstream run` says meanwhile depends on the clock.
_PROGRESS = re.compile(r"^(starting Spark|\w+: batch \d)")
_FED = re.compile(r'file "[^"]*\.parquet"')


def pages() -> list[Path]:
    """Return the README and all pages of the manual."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def page_name(path: Path) -> str:
    return "the-readme" if path == README else path.relative_to(DOCS).as_posix().removesuffix(".md")


@dataclass(frozen=True)
class Block:
    """A fenced block, or a comment that moves time (`language` is "run"); its lines are `start:end` of the page."""

    language: str
    words: tuple[str, ...]
    start: int
    end: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def file(self) -> str | None:
        """The file of the project that this block is."""
        if self.language in ("sql", "python") and (found := _FILE.match(self.lines[0])):
            return found[1]
        return self.words[0] if self.words and "." in self.words[0] else None


def blocks_of(path: Path) -> list[Block]:
    """Return a page's blocks in their order."""
    found: list[Block] = []
    lines = path.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence, directive = _FENCE.match(lines[number]), _DIRECTIVE.match(lines[number])
        number += 1
        if directive is not None:
            found.append(Block("run", tuple(directive[1].split()), number, number, ()))
        if fence is None:
            continue
        start = number
        while lines[number] != "```":
            number += 1
        language, *words = fence[1].split() or [""]
        found.append(Block(language, tuple(words), start, number, tuple(lines[start:number])))
        number += 1
    return found


@dataclass(frozen=True)
class Shown:
    """What a block showed, and the lines of the page that should say so."""

    start: int
    end: int
    expected: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.expected == self.lines


def uses_spark(path: Path) -> bool:
    return any(block.language == "run" and block.words == ("spark",) for block in blocks_of(path))


def uses_postgresql(path: Path) -> bool:
    return any(block.words == ("postgresql",) for block in blocks_of(path))


def uses_mysql(path: Path) -> bool:
    return any(block.words == ("mysql",) for block in blocks_of(path))


def uses_elasticsearch(path: Path) -> bool:
    return any("SEARCH_HOST" in block.text for block in blocks_of(path))


def uses_kafka(path: Path) -> bool:
    return any(block.language == "run" and block.words == ("kafka",) for block in blocks_of(path))


def run_page(
    path: Path, project: Path | None = None, database: Database | MySQLDatabase | None = None
) -> Iterator[Shown]:
    """Run a page; yield what it shows. With a folder for its project its commands may start Spark."""
    blocks = blocks_of(path)
    with _Run(project, database) as run:
        for number, block in enumerate(blocks):
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            try:
                yield from _shown(run, block, following)
            except (SqlStreamError, AssertionError) as error:
                error.add_note(f"{path}:{block.start}")
                raise
        _check_outputs(path, blocks)


def _shown(run: _Run, block: Block, following: Block | None) -> Iterator[Shown]:
    if block.language == "console":
        lines = tuple(run.console(block.lines))
        yield Shown(block.start, block.end, block.lines, lines)
        return
    output = run.block(block)
    if following is not None and following.language == "text" and not following.words and output is not None:
        yield Shown(following.start, following.end, following.lines, tuple(output.rstrip().splitlines()))
    else:
        assert block.words[:1] not in (("query",), ("error",), ("explain",)), "a block of text must show what comes out"


def _check_outputs(path: Path, blocks: list[Block]) -> None:
    """An output must be that of something."""
    for before, block in zip([None, *blocks], blocks, strict=False):
        if block.language == "text" and not block.words:
            assert before is not None, f"{path}:{block.start}: output of nothing"
            assert before.language in ("sql", "python", "csv", "run"), f"{path}:{block.start}: output of nothing"


class _Run:
    """The project of a page, and its jobs, which run in this process unless there is a folder for Spark."""

    def __init__(self, project: Path | None, database: Database | MySQLDatabase | None):
        self.database = database
        self.stream = SavedStream("", parallelism=2) if project is None else None
        self.root = project if self.stream is None else Path(self.stream.warehouse).parent
        self.names: dict[str, Any] = {"__name__": "page"}
        self._stack = contextlib.ExitStack()
        # The queries that jobs had before they were upgraded.
        self._earlier: list[PlannedJob] = []
        # Where the server is, which the page has at the usual port.
        self._address = SERVER

    def __enter__(self) -> _Run:
        assert self.root is not None
        for folder in ("catalog", "udfs", "in"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(contextlib.chdir(self.root))
        if self.stream is not None:
            self._stack.enter_context(self.stream)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _install(self, text: str) -> None:
        """Install a package of this project, as pip would leave it."""
        assert self.root is not None
        [(group, entries)] = tomllib.loads(text)["project"]["entry-points"].items()
        modules = [value.partition(":")[0] for value in entries.values()]
        info = self.root / f"{modules[0]}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {modules[0]}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
        sys.path.insert(0, str(self.root))
        _forget_packages()
        self._stack.callback(_forget_packages, modules)
        self._stack.callback(sys.path.remove, str(self.root))

    def block(self, block: Block) -> str | None:
        """Run a block; return what it shows, None where it shows nothing."""
        if block.file is not None:
            self._write(block.file, block.text)
        match block.language, block.words:
            case "run", ("printed",):
                return self._printed()
            case "run", words:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    self._move(words)
                return printed.getvalue()
            case "sql", ():
                if self.stream is not None:
                    self.stream.script(block.text, block.file or "sql")
            case "sql", ("query",):
                return self._query(block.text)
            case "sql", ("error",):
                return self._refused(block.text)
            case "sql", ("postgresql",):
                assert isinstance(self.database, Database)
                return shown_by_psql(self.database, block.text)
            case "sql", ("mysql",):
                assert isinstance(self.database, MySQLDatabase)
                return shown_by_mysql(self.database, block.text)
            case "sql", ("explain",):
                return self._explained(block.text)
            case ("csv" | "json") as form, (table,) if block.file is None:
                assert self.stream is not None
                self.stream.advance(1000)
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    self.stream.batch(table, _rows(form, block.lines))
                return printed.getvalue()
            case "python", ("spark",) if self.stream is not None:
                compile(block.text, "page", "exec")
            case "python", _ if block.file is None:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    text = block.text.replace(SERVER, self._address)
                    exec(compile(text, "page", "exec", dont_inherit=True), self.names)
                return printed.getvalue()
            case "sh", _:
                for line in block.text.replace("\\\n", " ").splitlines():
                    _check_command(shlex.split(line, comments=True))
            case "toml", ():
                self._install(block.text)
            case (("sql" | "python" | "text" | "csv" | "json" | "proto" | "ini" | "dockerfile" | "yaml" | "toml"), _):
                assert block.language == "text" or block.file is not None or block.words == (), block
            case _:
                raise AssertionError(f"nobody knows what a block of {block.language} {block.words} is")
        return None

    def console(self, lines: tuple[str, ...]) -> Iterator[str]:
        """Run the commands of a terminal; yield them with what they print."""
        text = iter([*lines, "$"])
        line = next(text)
        while line != "$":
            assert line.startswith("$ "), f"a terminal shows a command first: {line}"
            command = [line]
            while (line := next(text)).startswith("> "):
                command.append(line)
            while not line.startswith("$"):
                line = next(text)
            yield from command
            words = shlex.split("\n".join(part[2:] for part in command))
            printed = self._command(words).rstrip().splitlines()
            yield from (row.rstrip() for row in printed if not _PROGRESS.match(row))

    def _command(self, words: list[str]) -> str:
        program, *arguments = [word.replace(SERVER, self._address) for word in words]
        assert program == "sqlstream", f"{program} is not run"
        is_small = any(words in arguments[-1] for words in ("VALUES", "CREATE STATE CHECK"))
        assert self.stream is None or arguments[0] != "run" or is_small, "this would start Spark"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                cli.main(arguments, prog_name="sqlstream", standalone_mode=False)
            except SqlStreamError as error:
                print(error.render())
        return printed.getvalue()

    def _write(self, name: str, text: str) -> None:
        assert self.root is not None
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.suffix == ".py" and path.parent.name == "udfs" and self.stream is not None:
            known = self.stream.compiler.catalog.functions
            self.stream.compiler.add_functions([f for f in load(str(path.parent)) if f.name.lower() not in known])

    def _move(self, words: tuple[str, ...]) -> None:
        verb, *arguments = words
        if verb in ("spark", "kafka"):
            return
        assert self.stream is not None
        match verb:
            case "advance":
                self.stream.advance(int(arguments[0]))
            case "tick":
                self.stream.tick(arguments[0], " ".join(arguments[1:]))
            case "finish":
                self.stream.finish()
            case "restart":
                self.stream.restart()
            case "server":
                from tests.server.serving import serving, settings_of

                self._address, _ = self._stack.enter_context(serving(settings_of(self.root or Path())))
            case "checks":
                for run in self.stream.runs.values():
                    _look_at_checks(run)
            case "upgrade":
                self._upgrade(self.stream, arguments[0])
            case "restore":
                self._restore(self.stream, *arguments)
            case "read":
                for run in self.stream.runs.values():
                    run.pull()
            case "files":
                for run in self.stream.runs.values():
                    run.read_files(self.stream.fed)
            case _:
                raise AssertionError(f"nobody knows what {verb} is")

    def _upgrade(self, stream: Stream, file: str) -> None:
        """Let the job of a file go on with its query: in this process, where the command would start Spark."""
        with Session() as session:
            [planned] = session.compile(SourceText(file, Path(file).read_text("utf-8")))
            assert isinstance(planned, PlannedJob)
            record = existing_record(session.warehouse, planned.name)
            Upgrader(session.warehouse, planned, session.project.root, Upgrade(), print).run(record)
            job = job_spec(planned, stream.warehouse, record.bucket_labels, project=session.project.root)
        name = planned.name.lower()
        release(stream.runs[name].job)
        self._earlier.append(stream.planned(name))
        stream._planned[name] = planned
        stream._run(name, job)

    def _restore(self, stream: SavedStream, job: str, savepoint: str) -> None:
        """Let a job go back to a savepoint, with the query that it had then."""
        saved = find_savepoint(Warehouse(stream.warehouse), savepoint).warehouse
        record = read_record(saved.fs, saved.job(job))
        assert record is not None
        known = [one for one in (*self._earlier, stream.planned(job)) if is_planned(record, one)]
        stream._planned[job] = known[-1]
        stream.go_back(job, savepoint)

    def _printed(self) -> str:
        assert self.stream is not None
        *_, rows = (printed for printed in self.stream.printed.values() if printed)
        return "\n".join(" | ".join("NULL" if value is None else str(value) for value in row) for row in rows)

    def _query(self, sql: str) -> str:
        shown = io.StringIO()
        write_table(open_project_query(find_project(None, None), sql), shown)
        return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())

    def _refused(self, sql: str) -> str:
        assert self.stream is not None
        try:
            self.stream.script(sql, "query.sql")
        except SqlStreamError as error:
            return _FED.sub('file "fed"', error.render())
        raise AssertionError("this is not refused")

    def _explained(self, sql: str) -> str:
        assert self.stream is not None
        compiled = [self.stream.compile(statement) for statement in parse_script(SourceText("sql", sql))]
        [answer] = [one for one in compiled if one is not None]
        if isinstance(answer, Explanation):
            return explained(answer.job, answer.stage)
        assert isinstance(answer, PlannedJob)
        return explained(answer, "plan")


def _look_at_checks(run: SteppedRun) -> None:
    """Let a job look at its state checks, which the engine that runs pages does not; print the error that would stop it."""
    totals, checks = run.totals, StateChecks(run.job, run.commits.warehouse)
    rows = {name: sum(one.state_rows for one in found.values()) for name, found in totals.buckets.items()}
    try:
        checks.look(totals.version, rows)
    except JobError as error:
        print(error.render())
    finally:
        checks.close()


def _forget_packages(modules: Iterable[str] = ()) -> None:
    for module in modules:
        sys.modules.pop(module, None)
    registry.installed.cache_clear()
    registry.named.cache_clear()
    importlib.invalidate_caches()


def _rows(form: str, lines: tuple[str, ...]) -> list[dict[str, Any]]:
    if form == "json":
        return [json.loads(line) for line in lines]
    rows = csv.DictReader(lines, skipinitialspace=True)
    return [{name: None if value == "NULL" else value for name, value in row.items()} for row in rows]


def _check_command(words: list[str]) -> None:
    """A command that is not run must be one that exists, with options that exist."""
    if words[:1] == ["sqlstream"]:
        context = click.Context(cli, info_name="sqlstream")
        name, command, arguments = cli.resolve_command(context, words[1:])
        assert command is not None
        with command.make_context(name, arguments, parent=context):
            pass
    elif words[:1] == ["make"]:
        targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, f"make {words[1]} does not exist"
