"""A connection that loads nothing by itself, as those of the product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlstream.duck import databases
from tests.connectors.formats.reading_files import Con


@pytest.fixture
def con() -> Iterator[Con]:
    with databases.passing() as con:
        yield con
