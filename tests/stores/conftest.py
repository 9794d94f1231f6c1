"""A server that speaks S3, one for all tests of a worker; the cache of files is the worker's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream.warehouse import file_cache
from tests.stores.server import S3Server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an empty bucket that this process, and those that it starts, may use."""
    for name, value in {**s3.environment, "SQLSTREAM_CACHE": f"{tmp_path}/cache"}.items():
        monkeypatch.setenv(name, value)
    file_cache.user_cache.cache_clear()
    return s3.bucket()
