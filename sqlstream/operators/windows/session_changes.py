"""Sessions of rows that come and go: those that are there when the watermark passes them make the sessions."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.operators.windows.assigners import END, START, Arrival, weights
from sqlstream.operators.windows.sessions import Sessions
from sqlstream.state.zsets import WEIGHT
from sqlstream.units import EventTime


class ChangingSessions(Sessions):
    """Rows are pieces of their own, with weights. A change is late when the watermark has passed its row's time.

    So rows that the watermark has passed stay as they are. When their sessions, of them alone, have ended, no later change can
    touch those: neither lengthen nor part them. Else at most rows behind the watermark are taken away from what follows.
    """

    def source(self, keys: Sequence[str]) -> str:
        end = self.end if self.gap is None else f"{self.time} + to_microseconds({self.gap})"
        return f"(SELECT *, {self.time} AS {START}, {end} AS {END} FROM _rows)"

    def there(self, rows: str) -> str:
        total = f"CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT}"
        return f"(SELECT * EXCLUDE ({WEIGHT}), {total} FROM {rows} GROUP BY ALL HAVING sum({WEIGHT}) > 0)"

    def arrive(self, rows: pa.Table, watermark: EventTime) -> Arrival:
        passed = pc.less_equal(rows.column(START).cast(pa.int64()), watermark)
        return Arrival(rows.filter(pc.invert(passed)), late_rows=int(weights(rows.filter(passed)).sum()))
