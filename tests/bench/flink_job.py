"""One Flink SQL job from start to end, in Flink's own virtual environment, which has nothing of ours.

PYTHONPATH=../.. python flink_job.py '{"jars": [..], "cores": 2, "backend": "hashmap", "checkpoints": "..", "statements": [..]}'
prints the seconds, and how many rows its sources had read when, as JSON
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.bench.flink_progress import Progress


def count_char() -> object:
    """Return the Python function of Nexmark's q14, as udfs/nexmark.py has it."""
    from pyflink.table import DataTypes
    from pyflink.table.udf import udf

    def count(text: Any, character: str) -> Any:
        return text.str.count(character)  # a literal comes as it is

    return udf(count, result_type=DataTypes.BIGINT(), func_type="pandas")


def main(task: dict[str, Any]) -> None:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration, progress = Configuration(), Progress()
    settings = {
        **progress.settings,
        "pipeline.jars": ";".join(f"file://{jar}" for jar in task["jars"]),
        "pipeline.object-reuse": "true",
        "parallelism.default": str(task["cores"]),
        "taskmanager.numberOfTaskSlots": str(task["cores"]),
        "state.backend.type": task["backend"],
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": f"file://{task['checkpoints']}",
        "execution.checkpointing.incremental": "true",
        # Where RocksDB keeps what it reads and writes; a cluster would give it so much, in this process it is 128 MB.
        "taskmanager.memory.managed.size": "2 gb",
        # What Flink's own runs of Nexmark have set, but for `distinct-agg.split`: on two cores q15 and q16 are slower with it.
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "table.local-time-zone": "UTC",
        # What fails, fails: without this it is tried for ever.
        "restart-strategy.type": "none",
    }
    for name, value in settings.items():
        configuration.set_string(name, value)
    environment = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(environment)
    tables.create_temporary_function("count_char", count_char())
    progress.begin()
    for statement in task["statements"]:
        result = tables.execute_sql(statement)
    result.wait()
    print(json.dumps(progress.end()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
