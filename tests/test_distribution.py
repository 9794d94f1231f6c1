"""The distribution: its name in hints and in the manual, another program of a similar name, the wheel in a bare environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import sqlstream
from sqlstream import distribution as names
from tests.docs.pages import DOCS, ROOT, blocks_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Names of the distribution as people install it: in hints, in the manual, in examples.
_INSTALLED = re.compile(r"pip3? install [^\n`]*?(?<![\w./-])sqlstream(?!-spark|[\w/])|(?<![\w-])sqlstream\[")


def texts() -> list[Path]:
    folders = (ROOT / "sqlstream", ROOT / "examples")
    files = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md", ".toml", ".sh", "")
    ]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(path for path in files if path.is_file())]


def test_nothing_says_to_install_another_program() -> None:
    wrong = [
        f"{path}: {line}"
        for path in texts()
        for line in path.read_text("utf-8").splitlines()
        if _INSTALLED.search(line)
    ]
    assert wrong == []
    assert _INSTALLED.search("pip install 'sqlstream[kafka]'")
    assert _INSTALLED.search("`pip install sqlstream`, the same version")
    assert not _INSTALLED.search("pip install 'sqlstream-spark[kafka]'")


def test_extras_that_texts_name_exist() -> None:
    known = PROJECT["optional-dependencies"].keys()
    for path in texts():
        text = path.read_text("utf-8")
        for extras in re.findall(r"sqlstream-spark\[([\w,]+)\]", text) + re.findall(
            r"install_command\([\"'](\w+)", text
        ):
            assert set(extras.split(",")) <= known, path


def installed(folder: Path, name: str, version: str, command: str) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(f"[console_scripts]\nsqlstream = {command}\n")


def test_a_clone_installs_extras_from_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert names.install_command("kafka") == "pip install -e '.[kafka]'"
    monkeypatch.setattr(names, "is_clone", lambda: False)
    installed(tmp_path, "sqlstream-fork", "3.0", "sqlstream.cli.main:main")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert names.install_command("kafka") == "pip install 'sqlstream-fork[kafka]'"
    # An installation of an earlier name does not count beside it.
    installed(tmp_path, "sqlstream", "0.1.0", "sqlstream.cli.main:main")
    installed(tmp_path, "sqlstream-spark", "0.2.0", "sqlstream.cli.main:main")
    assert names.install_command("s3") == "pip install 'sqlstream-spark[s3]'"


def test_the_version_is_set_in_one_line() -> None:
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert sqlstream.__version__ == names.VERSION
    [package] = [
        one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"] if one["name"] == PROJECT["name"]
    ]
    assert "version" not in package
    number = re.compile(rf"[\"']{re.escape(names.VERSION)}[\"']")
    places = [path for path in (ROOT / "sqlstream").rglob("*.py") if number.search(path.read_text("utf-8"))]
    assert places == [ROOT / "sqlstream" / "distribution.py"]
    # What is set is what was released last.
    releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == names.VERSION


@pytest.mark.slow
def test_the_other_program_is_named(tmp_path: Path) -> None:
    assert names.namesake([str(tmp_path), str(tmp_path / "not there")]) is None
    installed(tmp_path, "sqlstream", "0.1.0", "sqlstream.cli.main:main")
    installed(tmp_path, "sqlstream-jsonl-tail", "1.0", "x:y")
    assert names.namesake([str(tmp_path)]) is None
    installed(tmp_path, "sqlstream", "0.6.3", "sqlstream.cli.main:cli")
    assert names.namesake([str(tmp_path)]) == "sqlstream 0.6.3"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-m", "sqlstream", "docs", "limits"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert 'warning: the distribution "sqlstream 0.6.3", another program, is installed beside' in done.stderr
    assert "pip uninstall sqlstream && pip install -e ." in done.stderr
    assert "sqlstream 0.6.3" not in done.stdout
    nothing = tmp_path / "nothing.sql"
    nothing.write_text("")
    for words, variable in ((["--log-format=json"], "text"), (["--log-format", "json"], "text"), ([], "json")):
        command = [sys.executable, "-m", "sqlstream", "run", str(nothing), *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**environment, "SQLSTREAM_LOG_FORMAT": variable},
            capture_output=True,
            text=True,
            check=True,
        )
        first, *_ = lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert (first["level"], first["event"], len(lines)) == ("warning", "notice", 2)
        assert first["message"].startswith('the distribution "sqlstream 0.6.3", another program, is installed beside')
        assert "pip uninstall sqlstream" in first["hint"]


def built(source: Path, kind: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    [path] = folder.iterdir()
    return path


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_the_wheel_of_the_sdist_is_the_wheel_of_the_clone(tmp_path: Path) -> None:
    sdist = built(ROOT, "sdist", tmp_path / "sdist")
    assert sdist.name == f"sqlstream_spark-{names.VERSION}.tar.gz"
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [source] = (tmp_path / "unpacked").iterdir()
    wheel = built(ROOT, "wheel", tmp_path / "wheel")
    assert wheel.name == f"sqlstream_spark-{names.VERSION}-py3-none-any.whl"
    assert contents(wheel) == contents(built(source, "wheel", tmp_path / "again"))
    assert {"sqlstream/docs/quickstart.md", "sqlstream/py.typed", "sqlstream/__main__.py"} <= contents(wheel)
    assert {name.partition("/")[0] for name in contents(wheel)} == {
        "sqlstream",
        f"sqlstream_spark-{names.VERSION}.dist-info",
    }


def required(of: PathDistribution, seen: dict[str, Requirement]) -> None:
    """Collect what a distribution requires without extras, and what that requires."""
    collect([Requirement(text) for text in of.requires or ()], "", seen)


def collect(requirements: list[Requirement], extra: str, seen: dict[str, Requirement]) -> None:
    for one in requirements:
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        key = f"{one.name}[{','.join(sorted(one.extras))}]"
        if key in seen:
            continue
        seen[key] = one
        inner = [Requirement(text) for text in distribution(one.name).requires or ()]
        for extra_of_it in ("", *one.extras):
            collect(inner, extra_of_it, seen)


def bare_environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with the wheel, and links to what its metadata requires; return the folder of its commands."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True)
    [library] = (folder / "lib").glob("python*/site-packages")
    [metadata] = library.glob("sqlstream_spark-*.dist-info")
    seen: dict[str, Requirement] = {}
    required(PathDistribution(metadata), seen)
    for one in seen.values():
        found = distribution(one.name)
        assert found.version in one.specifier, one
        tops = {Path(file.parts[0]) for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            # Packages of a namespace, such as google.protobuf, share a folder: its entries are linked.
            link(Path(str(found.locate_file(top))), library / top)
    return folder / "bin"


def link(source: Path, target: Path) -> None:
    if target.is_symlink():
        return
    if source.is_dir() and source.name == "google":
        target.mkdir(exist_ok=True)
        for entry in source.iterdir():
            link(entry, target / entry.name)
    elif source.exists():
        target.symlink_to(source)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
def test_the_quickstart_can_be_followed_from_the_wheel(tmp_path: Path) -> None:
    commands = bare_environment(tmp_path / "bare", built(ROOT, "wheel", tmp_path / "wheel"))
    project = tmp_path / "project"
    # As in a new terminal: nothing of the clone, nor of the environment of the tests.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SQLSTREAM", "SPARK", "VIRTUAL"))}
    environment["PATH"] = f"{commands}{os.pathsep}{os.environ['PATH']}"
    steps = 0
    for block in blocks_of(DOCS / "quickstart.md"):
        if block.file is not None:
            (project / block.file).parent.mkdir(parents=True, exist_ok=True)
            (project / block.file).write_text(block.text)
        elif block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, expected = part.partition("\n")
                done = subprocess.run(
                    ["sh", "-c", command], cwd=project, env=environment, capture_output=True, text=True
                )
                assert done.returncode == 0, done.stderr
                # Progress, which the page leaves out, goes to standard error with the summary of a run.
                shown = done.stdout + done.stderr if command.startswith("sqlstream run") else done.stdout
                assert expected.rstrip() in shown, (command, shown)
                steps += 1
    assert steps >= 6
    missing = subprocess.run(
        ["sqlstream", "serve"], cwd=project, env=environment, capture_output=True, text=True, timeout=60
    )
    assert "hint: Install it: pip install 'sqlstream-spark[server]'." in missing.stderr
