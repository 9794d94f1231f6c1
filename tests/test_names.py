"""Names in the package: one name, one meaning."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import sqlstream

pytestmark = pytest.mark.slow

PACKAGE = Path(sqlstream.__file__).parent


def test_a_class_name_means_one_thing() -> None:
    homes = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
