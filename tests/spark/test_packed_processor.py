"""What Spark asks of a processor at the start of a query costs little: it unpacks no job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from sqlstream.jobs.launch import job_spec
from sqlstream.spark.packed_processor import PackedProcessor
from sqlstream.spark.scratch import SparkCheckpoint
from sqlstream.spark.worker import Processor
from tests.kinds import last_job

OPENING = """
import pickle, sys

class Handle:
    def getValueState(self, name, schema):
        print(name, schema)

with open(sys.argv[1], "rb") as file:
    pickle.load(file).init(Handle())
print(*sorted({"duckdb", "pandas", "pyarrow", "numpy", "sqlglot"} & sys.modules.keys()))
"""


@pytest.mark.slow
def test_its_state_is_declared_without_the_packages_of_its_job(tmp_path: Path) -> None:
    planned = last_job(
        "CREATE TABLE t (k INT); SET 'sqlstream.unbounded-state' = 'allow'; SELECT k, count(*) FROM t GROUP BY k"
    )
    job = job_spec(planned, str(tmp_path), range(2), project=str(tmp_path))
    packed = PackedProcessor(Processor(job, 0, SparkCheckpoint(str(tmp_path))))
    (tmp_path / "packed").write_bytes(cloudpickle.dumps(packed))  # type: ignore[no-untyped-call]
    command = [sys.executable, "-c", OPENING, str(tmp_path / "packed")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "manifests json STRING\n\n"
