"""The examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re

import pytest

import sqlstream
from sqlstream.logical.plan.explain import logical_text
from sqlstream.logical.plan.rules import Rule, optimize
from tests.kinds import last_job

MODULES = [
    name for _, name, _ in pkgutil.walk_packages(sqlstream.__path__, "sqlstream.") if not name.endswith("__main__")
]

TABLE = """
CREATE TABLE t (k BIGINT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');
"""


def rewritten(query: str, *rules: Rule) -> None:
    """Print what rules make of the plan of a query over t(k, x, ts)."""
    [sink] = last_job(TABLE + query).logical
    plan, _ = optimize(sink.input, rules)
    print(re.sub(r"Scan t .*", "Scan t", logical_text(plan, schemas=False)))


# What examples of a module may call beside its own names.
NAMES = {"sqlstream.logical.plan.rules": {"rewritten": rewritten}}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    # `testmod` also runs docstrings without examples, each of which takes milliseconds.
    runner = doctest.DocTestRunner()
    found = doctest.DocTestFinder().find(module, extraglobs=NAMES.get(name))
    assert sum(runner.run(docstring).failed for docstring in found if docstring.examples) == 0
