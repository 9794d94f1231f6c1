"""Connectors by their names: those of other packages are imported by jobs that use them, and by nobody else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.loading import load_project
from sqlstream.connectors import reference, registry
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.errors import SourceText, UsageError
from sqlstream.project import Project
from sqlstream.session.project_query import open_project_query

TABLES = """
CREATE TABLE outside (k INT) WITH ('connector' = 'outside', 'any' = 'thing');
CREATE VIEW seen AS SELECT k + 1 AS k FROM outside;
CREATE TABLE inside (k INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
"""


def install(site: Path, module: str, value: str = "outside_package:Outside") -> None:
    """Write a package with a connector, as pip leaves it."""
    (site / "outside_package.py").write_text(module)
    info = site / "outside_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sqlstream.connectors]\noutside = {value}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    monkeypatch.undo()
    sys.modules.pop("outside_package", None)
    forget()


def forget() -> None:
    registry.installed.cache_clear()
    registry.named.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "tables.sql").write_text(TABLES)
    return Project(str(tmp_path), str(tmp_path / "warehouse"))


@pytest.mark.parametrize(
    ("module", "value", "message", "detail", "hint"),
    [
        (
            "1 / 0",
            "outside_package:Outside",
            "cannot be imported",
            "ZeroDivisionError: division by zero",
            "pip install",
        ),
        ("import not_there", "outside_package:Outside", "cannot be imported", "not_there", "pip install not_there"),
        ("Outside = 5", "outside_package:Outside", "is none", None, "sqlstream.connectors.interface.Connector"),
        (
            "",
            "outside_package:Outside",
            "cannot be imported",
            "AttributeError",
            "pip install --upgrade outside-package",
        ),
    ],
)
def test_a_package_that_fails_stops_those_that_use_it(
    site: Path, project: Project, module: str, value: str, message: str, detail: str | None, hint: str
) -> None:
    install(site, module, value)
    compiler = Compiler(project=project.root)
    try:
        load_project(project, compiler)
        compiler.scripts([SourceText("test", "SELECT k FROM inside")])
        for name in ("outside", "seen"):
            with pytest.raises(UsageError) as raised:
                compiler.scripts([SourceText("test", f"SELECT k FROM {name}")])
            error = raised.value
            assert error.message == f'table "outside": connector "outside" of package "outside-package" {message}'
            assert (error.detail is None) if detail is None else (detail in (error.detail or ""))
            assert hint in (error.hint or "")
    finally:
        compiler.close()


def test_queries_of_state_import_no_other_package(site: Path, project: Project) -> None:
    install(site, "raise SystemExit('it was imported')")
    assert open_project_query(project, "SELECT 1").fetchall() == [(1,)]
    with pytest.raises(Exception, match='has the connector "outside", whose rows only a job reads'):
        open_project_query(project, "SELECT * FROM outside")
    assert "outside_package" not in sys.modules


def test_built_in_connectors_are_what_their_names_say() -> None:
    for name in registry.built_in():
        connector = registry.named(name)
        assert connector.name == name
        assert connector.source_type or connector.sink_type or connector.lookup_type


def test_the_reference_has_every_connector_format_and_option() -> None:
    found = reference()
    for name in registry.built_in():
        assert f"| `{name}` |" in found["connectors"]
        for option in registry.named(name).options:
            assert option.meaning
            assert f"| `{option.name}` |" in found[f"options of {name}"]
    for name, form in FORMATS.items():
        assert f"| `{name}` |" in found["formats"]
        assert all(f"| `{option.name}` |" in found[f"options of format {name}"] for option in form.options)
