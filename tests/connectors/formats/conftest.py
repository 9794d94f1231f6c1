"""A connection that loads nothing by itself."""

from __future__ import annotations

import duckdb
import pytest

from tests.connectors.formats.reading_files import Con


@pytest.fixture
def con() -> Con:
    con = duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    con.execute("SET TimeZone = 'UTC'")
    return con
