"""Run queries and process functions in this process, without a JVM: feed rows, move time, look at results and state, restart.

The physical plan, the operators, the state files and the commits are the same as on Spark. Only Spark's part is imitated: it
moves frames, tracks the watermark, and fires timers.

    with sqlstream.testing.Stream(script) as stream:
        stream.batch("bid", [(1, "2026-01-01 10:00:01"), (1, "2026-01-01 10:00:15")])
        assert stream.rows("counts") == [(1, 1)]

    with sqlstream.testing.ProcessHarness(TemperatureAlerts, threshold=5, keys="sensor") as harness:
        assert harness.rows([{"sensor": "a", "temperature": 20.0}]) == []
        assert harness.state("last", key="a") == 20.0
"""

from sqlstream.testing.connectors import check_connector
from sqlstream.testing.harness import Emitted, ProcessHarness
from sqlstream.testing.row_files import write_rows
from sqlstream.testing.stream import Stream

__all__ = ["Emitted", "ProcessHarness", "Stream", "check_connector", "write_rows"]
