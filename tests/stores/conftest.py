"""A server that speaks S3, and Azurite, one for all tests of a worker; the cache of files is the test's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sqlstream.warehouse import file_cache
from tests import azurite_server
from tests.azurite_server import AzuriteServer
from tests.stores.server import S3Server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an empty bucket that this process, and those that it starts, may use."""
    use(monkeypatch, s3.environment, tmp_path)
    return s3.bucket()


@pytest.fixture(scope="session")
def azurite() -> Iterator[AzuriteServer]:
    if reason := azurite_server.why_not():
        pytest.skip(reason)
    with azurite_server.started() as server:
        yield server


@pytest.fixture
def container(azurite: AzuriteServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an empty container of Azure's store that this process, and those that it starts, may use."""
    use(monkeypatch, azurite.environment, tmp_path)
    return azurite.container()


def use(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], folder: Path) -> None:
    for name, value in {**environment, "SQLSTREAM_CACHE": f"{folder}/cache"}.items():
        monkeypatch.setenv(name, value)
    file_cache.user_cache.cache_clear()
