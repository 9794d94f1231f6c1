"""The database that a client's queries of the catalog run in."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.errors import SourceText
from sqlstream.server.postgres.catalog import ClientCatalog, catalog_query
from sqlstream.server.postgres.session import ClientSession


def test_a_catalog_that_was_not_completed_reads_no_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    sql = f"SELECT content FROM read_text('{tmp_path}/secret') AS pg_files"
    query = catalog_query(sql)
    assert query is not None
    # No database takes such a text: the catalog cannot be made.
    catalog = ClientCatalog(ClientSession("someone", "any", {"my.own": "\ud800"}), 1)
    for _ in range(2):
        with pytest.raises(Exception, match=r"surrogate|Unicode|unicode|utf|UTF"):
            catalog.answer(query, SourceText("query", sql), ())
