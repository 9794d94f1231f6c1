"""Which folders import from which, and through how many of its modules each folder is entered: numbers that may only fall."""

from __future__ import annotations

import ast
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest

import sqlstream

pytestmark = pytest.mark.slow

PACKAGE = Path(sqlstream.__file__).parent
FOLDERS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
# What there may be; `pytest tests/test_faces.py --update` lowers it to what there is.
LIMITS = Path(__file__).with_name("faces.json")
# What import-linter keeps behind the faces of folders, by folder.
NAME = "Behind the face of `{}`"
CONTRACTS = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
FACES: dict[str, list[str]] = {
    folder: contract["protected_modules"]
    for folder in FOLDERS
    for contract in CONTRACTS
    if contract["name"] == NAME.format(folder)
}


@dataclass(frozen=True)
class Limits:
    """How many pairs of folders there are of which one imports from the other, and how many modules of a folder are entered."""

    arrows: int
    entered: dict[str, int]


def test_folders_are_entered_through_no_more_modules(pytestconfig: pytest.Config) -> None:
    arrows, entered = folders_by_importer(), entered_modules()
    limits = Limits(**json.loads(LIMITS.read_text()))
    now = Limits(
        sum(map(len, arrows.values())), {folder: len(entered[folder]) for folder in FOLDERS if entered[folder]}
    )
    if pytestconfig.getoption("update"):
        lower = {folder: min(n, limits.entered.get(folder, 0)) for folder, n in now.entered.items()}
        limits = Limits(min(now.arrows, limits.arrows), lower)
        LIMITS.write_text(json.dumps(asdict(limits), indent=2) + "\n")
    more = {folder: sorted(entered[folder]) for folder, n in now.entered.items() if n > limits.entered.get(folder, 0)}
    assert not more, "enter these folders through modules that are entered already, or add to those"
    assert now.arrows <= limits.arrows, {folder: sorted(below) for folder, below in sorted(arrows.items())}
    assert now == limits, f"fewer than before: {now}; pytest tests/test_faces.py --update records it"


@pytest.mark.parametrize("folder", FACES)
def test_what_nobody_enters_is_behind_the_face_of_its_folder(folder: str) -> None:
    paths = (path.relative_to(PACKAGE.parent) for path in (PACKAGE / folder).rglob("*.py"))
    modules = {".".join(path.with_suffix("").parts) for path in paths if path.name != "__init__.py"}
    inner = {module for module in modules if any(is_behind(module, place) for place in FACES[folder])}
    alone = modules - entered_modules()[folder]
    assert inner == alone, f'list what nobody enters in pyproject.toml, under "{NAME.format(folder)}"'


def is_behind(module: str, place: str) -> bool:
    """Whether a module is one of those that import-linter understands by a place: a module, a folder, or all in a folder."""
    if place.endswith(".*"):
        return module.startswith(place[:-1])
    return module == place or module.startswith(f"{place}.")


def test_how_modules_are_counted() -> None:
    text = """
import sqlstream.names
from sqlstream.storage import bucket as tables, views
from sqlstream.jobs.verification import verify_job

def later():
    from sqlstream.warehouse.paths import JobPaths, Warehouse
"""
    assert set(imported(text)) == {
        "sqlstream.names",
        "sqlstream.storage.bucket",
        "sqlstream.storage.views",
        "sqlstream.jobs.verification",
        "sqlstream.warehouse.paths",
    }
    entered = entered_modules()
    assert "sqlstream.storage.zsets" in entered["storage"]
    assert "sqlstream.storage.sums" not in entered["storage"]
    assert entered["spark"] == {"sqlstream.spark.engine"}
    assert {"spark", "local"} <= folders_by_importer()["jobs"]


def folders_by_importer() -> dict[str, set[str]]:
    """Return the folders from which each folder imports, for types and inside of functions, too."""
    arrows = defaultdict(set)
    for importer, module in imports():
        if importer in FOLDERS and folder_of(module) in FOLDERS:
            arrows[importer].add(folder_of(module))
    return arrows


def entered_modules() -> dict[str, set[str]]:
    """Return the modules of each folder that code outside of the folder imports."""
    entered = defaultdict(set)
    for _, module in imports():
        entered[folder_of(module)].add(module)
    return entered


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Return the imports between folders, as (importing folder or module of the top, imported module)."""
    pairs = set()
    for path in PACKAGE.rglob("*.py"):
        importer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        pairs |= {(importer, module) for module in imported(path.read_text()) if folder_of(module) != importer}
    return frozenset(pairs)


def imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("sqlstream."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sqlstream":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else node.module


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def folder_of(module: str) -> str:
    """Return the folder of a module, or the module's own name if it is at the top."""
    return module.split(".")[1] if "." in module else ""
