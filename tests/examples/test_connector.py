"""`examples/connector`: a connector in a package of its own, installed and run."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors import registry
from sqlstream.errors import BindError, DataError, SourceText, SqlStreamError
from sqlstream.queries.query import open_query
from sqlstream.testing import Stream, check_connector
from sqlstream.warehouse.paths import Warehouse
from tests.processes import SECONDS, kill_group, wait_with
from tests.spark.orders import version

PACKAGE = Path(__file__).parents[2] / "examples" / "connector"


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package, from its source, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(folder), str(PACKAGE)], check=True, capture_output=True, text=True)
    return folder


def compiled(script: str) -> None:
    compiler = Compiler()
    try:
        compiler.scripts([SourceText("test", script)])
    finally:
        compiler.close()


def forget() -> None:
    registry.installed.cache_clear()
    registry.named.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def installed(target: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(target))
    forget()
    yield
    for name in [name for name in sys.modules if name.startswith("sqlstream_jsonl_tail")]:
        del sys.modules[name]
    monkeypatch.undo()
    forget()


def append(file: Path, *keys: int, end: str = "\n") -> None:
    text = "\n".join(json.dumps({"k": k, "ts": f"2026-01-01 00:00:{k:02}"}) for k in keys)
    with file.open("a") as opened:
        opened.write(text + end)


def table(file: Path, **options: str) -> str:
    others = "".join(f", '{name}' = '{value}'" for name, value in options.items())
    return f"""
        CREATE TABLE log (
          k BIGINT, ts TIMESTAMP(3), line BIGINT METADATA FROM 'offset',
          WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
        ) WITH ('connector' = 'jsonl-tail', 'path' = '{file}', 'format' = 'json',
          'source.monitor-interval' = '0 s'{others});
    """


def pull(stream: Stream, job: str = "out") -> list[tuple[Any, ...]]:
    """Give a job what its sources have now; return its table."""
    stream.runs[job].pull()
    return sorted(stream.query(f"SELECT * FROM {job}"))


COPY = "CREATE TABLE out (k BIGINT, line BIGINT); INSERT INTO out SELECT k, line FROM log"


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_lines_count_once_when_they_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    with Stream(table(file) + COPY) as stream:
        assert pull(stream) == []
        append(file, 1, 2)
        length = file.stat().st_size // 2
        assert pull(stream) == [(1, 0), (2, length)]
        # Half a line, and then the rest of it.
        append(file, 3, end="")
        assert len(pull(stream)) == 2
        stream.restart()
        file.write_text(file.read_text() + "\n\n")
        assert [k for k, _ in pull(stream)] == [1, 2, 3]
        append(file, 4)
        stream.restart()
        assert pull(stream)[-1] == (4, 3 * length + 1)
        assert len(pull(stream)) == 4


@pytest.mark.usefixtures("installed")
def test_a_commit_is_told_to_the_connector(tmp_path: Path) -> None:
    file, position = tmp_path / "log.jsonl", tmp_path / "read"
    with Stream(table(file, **{"position-path": str(position)}) + COPY) as stream:
        append(file, 1, 2)
        pull(stream)
        assert int(position.read_text()) == file.stat().st_size
        before = file.stat().st_size
        append(file, 3, end="")
        pull(stream)
        assert int(position.read_text()) == before


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_batches_are_cut_at_the_ends_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    append(file, *range(40))
    with Stream(table(file, **{"source.max-bytes-per-batch": "100 b"}) + COPY) as stream:
        seen = 0
        while seen < 40:
            found = len(pull(stream))
            assert seen < found <= seen + 3
            seen = found
        assert [k for k, _ in pull(stream)] == list(range(40))


@pytest.mark.usefixtures("installed")
def test_windows_close_by_its_watermark(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    windows = """
        CREATE TABLE out (start TIMESTAMP(3), n BIGINT);
        INSERT INTO out SELECT window_start, COUNT(*)
        FROM TUMBLE(TABLE log, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end
    """
    with Stream(table(file) + windows) as stream:
        append(file, 1, 2, 10)
        assert pull(stream) == []
        stream.restart()
        append(file, 3, 11)
        assert [n for _, n in pull(stream)] == [3]


@pytest.mark.usefixtures("installed")
def test_malformed_lines(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    append(file, 1)
    offset = file.stat().st_size
    file.write_text(file.read_text() + '{"k": 1.5}\n')
    with Stream(table(file) + COPY) as stream:
        with pytest.raises(SqlStreamError) as raised:
            pull(stream)
        assert raised.value.message == f'the value at offset {offset} of file "{file}" of table "log" is malformed'
    with Stream(table(file, **{"json.errors-to": "bad"}) + COPY) as stream:
        assert pull(stream) == [(1, 0)]
        assert stream.query("SELECT source_table, file, row_number, text FROM bad") == [
            ("log", f'file "{file}"', offset, '{"k": 1.5}')
        ]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("after", "message"), [((7, 8, 9), "is another one than was read"), ((), "is shorter than")])
def test_a_file_that_was_rotated_or_truncated(tmp_path: Path, after: tuple[int, ...], message: str) -> None:
    file = tmp_path / "log.jsonl"
    append(file, 1, 2)
    with Stream(table(file) + COPY) as stream:
        pull(stream)
        text = file.read_text()
        file.write_text("" if after else text[: len(text) // 2])
        append(file, *after) if after else None
        with pytest.raises(DataError, match=message):
            pull(stream)
        # What is put back goes on where it was.
        file.write_text(text)
        append(file, 3)
        assert [k for k, _ in pull(stream)] == [1, 2, 3]


@pytest.mark.usefixtures("installed")
def test_a_rotated_file_is_read_from_its_start_if_asked(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    append(file, 1, 2)
    with Stream(table(file, **{"on-rotation": "restart"}) + COPY) as stream:
        pull(stream)
        file.unlink()
        append(file, 5)
        stream.restart()
        assert [k for k, _ in pull(stream)] == [1, 2, 5]
        append(file, 6)
        assert [k for k, _ in pull(stream)] == [1, 2, 5, 6]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ("'format' = 'json'", 'table "t" needs the option "path"', "'path' = 'events.jsonl'"),
        ("'path' = 'x'", 'table "t" needs the option "format"', "'format' = 'json'"),
        (
            "'path' = 'x', 'format' = 'json', 'on-rotate' = 'fail'",
            'table "t": option "on-rotate" does not exist for format "json"',
            'did you mean "on-rotation"?',
        ),
        (
            "'path' = 'x', 'format' = 'json', 'on-rotation' = 'wait'",
            'table "t": option "on-rotation": "wait" is neither fail nor restart',
            None,
        ),
        (
            "'path' = 'x', 'format' = 'csv'",
            'table "t": connector "jsonl-tail" has no format "csv"',
            "json, debezium-json",
        ),
    ],
)
def test_errors_are_made_of_what_it_declares(options: str, message: str, hint: str | None) -> None:
    with pytest.raises(BindError) as raised:
        compiled(f"CREATE TABLE t (k INT) WITH ('connector' = 'jsonl-tail', {options})")
    assert raised.value.message == message
    assert hint is None or hint in (raised.value.hint or "")


@pytest.mark.usefixtures("installed")
def test_the_readme_shows_a_job_that_runs(tmp_path: Path) -> None:
    [script] = re.findall(r"```sql\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "clicks.jsonl"
    for second in ("00:10", "00:20", "02:00"):
        with file.open("a") as opened:
            opened.write(json.dumps({"page": "a", "ts": f"2026-01-01 00:{second}"}) + "\n")
    with Stream(script.replace("'clicks.jsonl'", f"'{file}'")) as stream:
        assert [n for *_, n in pull(stream, "per_minute")] == [2]


@pytest.mark.usefixtures("installed")
def test_it_declares_all_that_nobody_can_assume() -> None:
    check_connector(type(registry.named("jsonl-tail")))


@pytest.mark.usefixtures("installed")
def test_the_readme_lists_its_options() -> None:
    listed = set(re.findall(r"^\| `([\w.-]+)` \|", (PACKAGE / "README.md").read_text(), re.MULTILINE))
    assert listed == {"format", *(option.name for option in registry.named("jsonl-tail").options)}


def test_it_is_not_there_without_the_package() -> None:
    forget()
    with pytest.raises(BindError, match='connector "jsonl-tail" does not exist'):
        compiled("CREATE TABLE t (k INT) WITH ('connector' = 'jsonl-tail', 'path' = 'x', 'format' = 'json')")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
def test_a_job_that_is_killed_goes_on_behind_its_last_batch(tmp_path: Path, target: Path) -> None:
    append(tmp_path / "log.jsonl", *range(60))
    script = """
        CREATE TABLE log (k BIGINT) WITH ('connector' = 'jsonl-tail', 'path' = 'log.jsonl', 'format' = 'json',
          'source.max-bytes-per-batch' = '120 b');
        CREATE TABLE out (k BIGINT);
        INSERT INTO out SELECT k FROM log;
    """
    (tmp_path / "tail.sql").write_text(script)
    warehouse = Warehouse(str(tmp_path / "warehouse"))

    def run(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sqlstream", "run", "tail.sql", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{target}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    for wanted in (1, 4):
        killed = run("--set-table", "log.source.monitor-interval=100 ms")
        wait_with(killed, lambda wanted=wanted: version(tmp_path, "out") >= wanted)
        kill_group(killed)
    last = run()
    output, _ = last.communicate(timeout=SECONDS)
    assert last.returncode == 0, output
    assert sorted(k for (k,) in open_query(warehouse, "SELECT k FROM out").fetchall()) == list(range(60))
