"""Azure's store has what warehouses need: a job whose warehouse, input and output are there, and conditions of files."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from sqlstream.errors import UsageError
from sqlstream.session.session import Session
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.stores import PreconditionFailed, open_store
from tests.azurite_server import AzuriteServer
from tests.processes import wait_until
from tests.stores import store_job
from tests.stores.store_job import FILES, LOCAL, ROWS, SCRIPT, expected, put_input, sink_files


@pytest.mark.slow
def test_a_job_in_a_container(container: str, tmp_path: Path) -> None:
    for files in (range(FILES // 2), range(FILES // 2, FILES)):
        put_input(container, files)
        with Session(str(tmp_path), warehouse=f"{container}/wh") as session:
            job = store_job.start(session, container, LOCAL)
            wait_until(lambda job=job, rows=files.stop * ROWS: job.progress.rows_in == rows and job.is_waiting)
            with pytest.raises(UsageError, match='job "both" is being run by process'):
                session.sql(SCRIPT.format(bucket=container))
            job.stop(drain=files.stop == FILES)
            job.wait()
    with Session(str(tmp_path), warehouse=f"{container}/wh") as session:
        assert sorted(session.query("FROM counts").fetchall()) == sorted(expected())
        assert sorted(sink_files(container)) == [
            (k, f"{k // ROWS:03}.parquet", f"p{k % 2}") for k in range(FILES * ROWS)
        ]
        assert not [c.damaged for c in session.check() if c.damaged]
        session.drop("both")
    assert list(Warehouse(f"{container}/wh").fs.walk(f"{container}/wh")) == []


@pytest.mark.slow
@pytest.mark.thorough
def test_files_of_a_container(azurite: AzuriteServer, container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, root = open_store(container)
    before = fs.put_if(f"{root}/x", "1", None)
    after = fs.put_if(f"{root}/x", "2", before)
    for tag in (before, None):
        with pytest.raises(PreconditionFailed):
            fs.put_if(f"{root}/x", "3", tag)
    assert fs.read_tagged(f"{root}/x") == (b"2", after)
    paths = [f"{root}/many/{number}" for number in range(4)]
    for path in paths[1:]:
        fs.write_text_atomic(path, "x")
    # The first one is not there.
    fs.delete_all(paths)
    assert list(fs.walk(root)) == [f"{root}/x"]
    missing = container.replace("container-", "no-container-")
    with pytest.raises(UsageError, match=f'"{missing}" does not exist'):
        open_store(missing)[0].write_text_atomic(f"{missing}/x", "")
    # The store that was opened above has the right key.
    again = f"{container}?endpoint_override={azurite.endpoint}&scheme=http"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "no key")
    with pytest.raises(UsageError, match=f'"{container}" cannot be opened'):
        open_store(again)[0].read_text(f"{root}/x")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"of another account").decode())
    with pytest.raises(UsageError, match="no permission to use") as refused:
        open_store(again)[0].read_text(f"{root}/x")
    assert refused.value.hint is not None
    assert "AZURE_STORAGE_ACCOUNT_KEY" in refused.value.hint
