"""`sqlstream init`: the files of a new project, which runs as it is."""

from __future__ import annotations

from pathlib import Path

from sqlstream.errors import UsageError

ORDERS = """\
-- All commands in this folder, and below it, know what is declared in catalog/*.sql.
CREATE TABLE orders (
    id BIGINT,
    shop STRING,
    amount DECIMAL(10, 2),
    order_time TIMESTAMP(3),
    WATERMARK FOR order_time AS order_time - INTERVAL '5' MINUTE
) WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'json');
"""

FUNCTIONS = '''\
"""Functions that SQL can call: those with a decorator, in all files of this folder."""

from sqlstream import udf

REGIONS = {"Bergen": "west", "Oslo": "east"}


@udf
def region(shop: str) -> str:
    """Return the region of a shop."""
    return REGIONS.get(shop, "elsewhere")
'''

REVENUE = """\
-- Run it with `sqlstream run revenue.sql`, as often as you like: it goes on where it was.
-- Windows that are open when all files have been read stay open for the next run.
SET 'execution.end-of-input' = 'wait';

CREATE TABLE IF NOT EXISTS revenue (region STRING, hour TIMESTAMP(3), orders BIGINT, total DECIMAL(38, 2));

INSERT INTO revenue
WITH hourly AS (
    SELECT region(shop) AS region, window_start, window_end, COUNT(*) AS orders, SUM(amount) AS total
    FROM TUMBLE(TABLE orders, DESCRIPTOR(order_time), INTERVAL '1' HOUR)
    GROUP BY region(shop), window_start, window_end
)
SELECT region, window_start, orders, total FROM hourly;
"""

ROWS = """\
{"id": 1, "shop": "Oslo", "amount": 20.00, "order_time": "2026-03-01 10:05:00"}
{"id": 2, "shop": "Bergen", "amount": 35.50, "order_time": "2026-03-01 10:20:00"}
{"id": 3, "shop": "Oslo", "amount": 12.25, "order_time": "2026-03-01 10:40:00"}
{"id": 4, "shop": "Oslo", "amount": 80.00, "order_time": "2026-03-01 11:10:00"}
"""

TEST = '''\
"""Run with `pytest` (`pip install pytest`). The jobs run in the process of the test, without Spark."""

from pathlib import Path

from sqlstream.functions.load import load
from sqlstream.testing import Stream

PROJECT = Path(__file__).parents[1]


def test_an_hour_is_counted_when_it_is_over() -> None:
    # A test feeds tables that have no connector.
    orders = (PROJECT / "catalog" / "orders.sql").read_text().partition(") WITH")[0] + ");"
    with Stream(orders + (PROJECT / "revenue.sql").read_text(), functions=load(str(PROJECT / "udfs"))) as stream:
        stream.batch("orders", [(1, "Oslo", 20.0, "2026-03-01 10:05:00"), (2, "Bergen", 5.5, "2026-03-01 10:59:59")])
        assert stream.rows("revenue") == []
        # The watermark is five minutes behind the newest order.
        stream.batch("orders", [(3, "Oslo", 1.0, "2026-03-01 11:05:00")])
        found = {(region, orders, float(total)) for region, _, orders, total in stream.rows("revenue")}
        assert found == {("east", 1, 20.0), ("west", 1, 5.5)}
'''

README = """\
# {name}

Streaming SQL with sqlstream. `sqlstream docs` shows the manual.

```sh
sqlstream run revenue.sql                                # needs Java 17 or newer
sqlstream query "SELECT * FROM revenue"
sqlstream query "SELECT * FROM state.revenue.hourly"     # the windows that are open
sqlstream shell
pytest                                                   # needs: pip install pytest
```

| | |
|---|---|
| `catalog/` | tables, views and functions that all scripts know |
| `udfs/` | Python functions |
| `revenue.sql` | a job |
| `in/` | what the job reads |
| `tests/` | tests of the job, which need no Java |
| `warehouse/` | state and results; git ignores it |
"""

IGNORED = """\
/warehouse/
/metastore_db/
__pycache__/
.pytest_cache/
.venv/
"""

FILES = {
    "catalog/orders.sql": ORDERS,
    "udfs/regions.py": FUNCTIONS,
    "revenue.sql": REVENUE,
    "in/orders/1.json": ROWS,
    "tests/test_revenue.py": TEST,
    "README.md": README,
    ".gitignore": IGNORED,
}


def make_project(folder: str) -> Path:
    """Write a new project into a folder, which must be empty or not exist; return its path. Raises UsageError."""
    if not folder.strip():
        raise UsageError("the name of the project is empty", hint="Write sqlstream init NAME, or . for this folder.")
    root = Path(folder)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageError(
            f'"{folder}" exists already', hint="A new project needs a folder that does not exist, or is empty."
        )
    try:
        for name, text in FILES.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("{name}", root.resolve().name) if name == "README.md" else text, "utf-8")
    except OSError as e:
        raise UsageError(f'folder "{folder}" cannot be written', detail=e.strerror or str(e)) from e
    return root
