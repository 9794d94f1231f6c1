"""What the processes of jobs write is kept, and does not grow for ever."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from sqlstream.server import supervisor
from sqlstream.server.processes import JobProcess, last_words
from sqlstream.server.submissions import submissions
from sqlstream.warehouse import log_files
from tests.processes import wait_until
from tests.server.serving import serving, settings_of, without_spark

pytestmark = pytest.mark.slow


def test_the_last_words_are_those_of_the_last_process(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    assert last_words(str(output)) == ""
    for number in (1, 2):
        process = JobProcess.start(["sh", "-c", f"printf 'words {number}'"], "", str(tmp_path), str(output))
        wait_until(lambda process=process: not process.is_alive)
        assert last_words(str(output)) == f"words {number}"
    assert "words 1\n--- started at " in output.read_text()


def test_the_output_of_a_job_is_cut_and_goes_with_its_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_HOUSE_SECONDS", 0.0)
    (tmp_path / "catalog").mkdir()
    (tmp_path / "in").mkdir()
    sql = """
    CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv',
        'source.monitor-interval' = '50 ms');
    CREATE TABLE twice (n BIGINT);
    INSERT INTO twice SELECT 2 * n FROM numbers;
    """
    (tmp_path / "in" / "1.csv").write_text("1\n")
    with (
        serving(settings_of(tmp_path), without_spark(tmp_path)) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        first = str(client.post("/v1/jobs", json={"sql": sql}).json()["id"])
        output = service.supervisor.output_of(first)
        wait_until(lambda: os.path.exists(output))
        os.truncate(output, log_files.LARGEST + 1)
        # It is copied, which takes a moment; the process may have written more before.
        wait_until(lambda: os.path.exists(f"{output}.1") and os.path.getsize(f"{output}.1") > log_files.LARGEST)
        wait_until(lambda: client.get("/v1/jobs/twice").is_success)
        client.post("/v1/jobs/twice/stop", json={})
        wait_until(lambda: service.supervisor.about("twice") is None)
        # The same again is another submission.
        assert client.post("/v1/jobs", json={"sql": sql}).status_code == 201
        wait_until(lambda: not os.path.exists(output) and not os.path.exists(f"{output}.1"))
        [second] = [one.id for one in submissions(service.warehouse)]
        assert second != first
        wait_until(lambda: client.get("/v1/jobs/twice").json()["job"]["status"] == "RUNNING")
        client.post("/v1/jobs/twice/stop", json={})
