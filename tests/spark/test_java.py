"""Java is found where it is, and the classes of Spark are archived, so that the next JVM starts sooner."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from sqlstream.errors import UsageError
from sqlstream.spark import class_data, jvm
from sqlstream.spark.class_data import ClassData, make_archive
from sqlstream.spark.java import find_java, java_version


def fake_java(folder: Path, release: str | None, script: str = "exit 1") -> Path:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{release}"\n')
    return java


# -- finding Java


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, on_path = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert (find_java().path, find_java().version) == (str(home), 21)
    monkeypatch.delenv("JAVA_HOME")
    assert (find_java().path, find_java().version) == (str(on_path), 17)


def test_an_old_java_home_does_not_hide_a_java_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17").parent))
    assert find_java().version == 17


def test_no_java_is_one_sentence_and_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlstream.spark.java._HOMEBREW", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UsageError) as error:
        find_java()
    assert str(error.value) == (
        "error: Spark needs Java 17 or newer and there is none\n"
        "hint: Install it with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu) or "
        "`brew install openjdk@17` (macOS), or set JAVA_HOME. Without Java jobs run with --engine local, in this process."
    )


def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlstream.spark.java._HOMEBREW", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    old = fake_java(tmp_path / "jdk", "1.8.0_292")
    with pytest.raises(UsageError, match="Spark needs Java 17 or newer") as error:
        find_java()
    assert error.value.message.endswith(f"{old} is Java 8")


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    script = "echo 'openjdk version \"25\" 2025-09-16' >&2"
    assert java_version(str(fake_java(tmp_path / "a", None, script))) == 25
    # As macOS's /usr/bin/java where no Java is installed.
    assert java_version(str(fake_java(tmp_path / "b", None, "echo 'No Java runtime present' >&2; exit 1"))) is None
    assert java_version(str(tmp_path / "nothing")) is None


# -- the class-data archive


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SQLSTREAM_CDS", raising=False)
    return tmp_path / "cache" / "sqlstream"


def archive_of(java: Path, *jars: Path) -> ClassData:
    found = class_data.class_data(str(java), [str(j) for j in jars])
    assert found is not None
    return found


def test_classes_are_recorded_until_there_is_an_archive(tmp_path: Path, cache: Path) -> None:
    java, jar = fake_java(tmp_path / "jdk", "17"), tmp_path / "a.jar"
    jar.write_bytes(b"1")
    # Of a run that was killed.
    cache.mkdir(parents=True)
    (cache / "classes-x.1.lst").write_text("")
    os.utime(cache / "classes-x.1.lst", (1e9, 1e9))
    first = archive_of(java, jar)
    assert not list(cache.iterdir())
    assert first.options == [f"-XX:DumpLoadedClassList={first.record}"]
    first.archive.write_bytes(b"archive")
    assert archive_of(java, jar).options == [f"-XX:SharedArchiveFile={first.archive}"]
    jar.write_bytes(b"12")
    assert archive_of(java, jar).archive != first.archive


def test_what_killed_processes_left_goes_and_what_is_in_use_stays(tmp_path: Path, cache: Path) -> None:
    java = fake_java(tmp_path / "jdk", "17")
    archive_of(java).archive.write_bytes(b"archive")
    ended = subprocess.Popen(["true"])
    ended.wait()
    hour, week = 3700, 8 * 86_400
    for name, seconds in (
        (f"x.{ended.pid}-1.lst", hour),
        (f"x.{ended.pid}.tmp", hour),
        (f"y.{ended.pid}-2.lst", 60),
        (f"x.{os.getpid()}-3.lst", hour),
        (f"x.{os.getpid()}-4.lst", week),
    ):
        (cache / f"classes-{name}").write_text("")
        os.utime(cache / f"classes-{name}", (time.time() - seconds,) * 2)
    # There is an archive, so nothing is to be made.
    assert archive_of(java).record is None
    left = sorted(p.name for p in cache.iterdir() if p.suffix != ".jsa")
    assert left == sorted([f"classes-y.{ended.pid}-2.lst", f"classes-x.{os.getpid()}-3.lst"])


def test_archives_can_be_turned_off(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLSTREAM_CDS", "off")
    assert class_data.class_data(str(fake_java(tmp_path / "jdk", "17")), []) is None
    assert not cache.exists()


def test_a_cache_that_cannot_be_made_turns_them_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert class_data.class_data(str(fake_java(tmp_path / "jdk", "17")), []) is None


def test_a_session_without_a_job_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    recorded = archive_of(fake_java(tmp_path / "jdk", "17"))
    assert recorded.record is not None
    recorded.record.write_text("java/lang/Object id: 0\norg/apache/spark/SparkContext id: 1\n")
    assert recorded.archive_later(["java"], str(tmp_path / "log")) is None
    assert list(cache.iterdir()) == []


def test_a_session_ends_whatever_becomes_of_its_archive(tmp_path: Path, cache: Path) -> None:
    recorded = archive_of(fake_java(tmp_path / "jdk", "17"))
    assert recorded.record is not None
    recorded.record.write_text(class_data._SEEN_IN_A_JOB)
    # Not even its log can be written.
    assert recorded.archive_later(["java"], str(tmp_path)) is None
    assert list(cache.iterdir()) == []
    recorded.record.mkdir()
    recorded.discard()


def test_only_a_complete_archive_gets_its_name(tmp_path: Path, cache: Path) -> None:
    def dump(exit_code: int) -> Path:
        script = (
            f'for a in "$@"; do case $a in -XX:SharedArchiveFile=*) echo x > "${{a#*=}}";; esac; done; exit {exit_code}'
        )
        return fake_java(tmp_path / f"jdk{exit_code}", "17", script)

    for java, complete in ((dump(1), False), (dump(0), True)):
        found = archive_of(java)
        assert found.record is not None
        found.record.write_text("")
        assert make_archive(found.archive, found.record, [str(java)]) is complete
        assert [p.name for p in cache.glob("classes-*")] == ([found.archive.name] if complete else [])


def test_archives_of_other_versions_go_but_for_the_last_used(tmp_path: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    for age in range(1, 5):
        (cache / f"classes-{age}.jsa").write_text("")
        os.utime(cache / f"classes-{age}.jsa", (1e9 - age, 1e9 - age))
    for name, when in (("classes-x.1.lst", 1e9), ("classes-x.2.tmp", 1e9), ("classes-x.3.lst", None)):
        (cache / name).write_text("")
        if when:
            os.utime(cache / name, (when, when))
    class_data._prune(cache / "classes-1.jsa")
    assert sorted(p.name for p in cache.iterdir()) == ["classes-1.jsa", "classes-2.jsa", "classes-x.3.lst"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
def test_java_uses_the_archive_and_survives_a_broken_one(tmp_path: Path, cache: Path) -> None:
    java = find_java().path
    found = archive_of(Path(java))

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [java, *jvm.MODULE_OPTIONS, "-cp", "/nothing", *options, "-version"]
        return subprocess.run(command, capture_output=True, text=True)

    assert run(*found.options).returncode == 0
    assert found.record is not None
    assert make_archive(found.archive, found.record, [java, *jvm.MODULE_OPTIONS, "-cp", "/nothing"])
    options = archive_of(Path(java)).options
    assert run(*options, "-Xshare:on").returncode == 0
    whole = found.archive.read_bytes()
    found.archive.chmod(0o644)
    for broken in (whole[: len(whole) // 2], whole[:100], b"", b"\0" * 4096 + whole[4096:]):
        found.archive.write_bytes(broken)
        assert run(*options).returncode == 0
