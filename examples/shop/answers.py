"""What the jobs must have written in the end: DuckDB's answers over all messages at once; and what they have written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import events
import psycopg
import pyarrow as pa
from deltalake import DeltaTable

Rows = Counter[tuple[Any, ...]]

# Distinct messages, without the orders that the jobs have put aside as late.
VIEWS = """
CREATE VIEW distinct_orders AS
    SELECT DISTINCT * REPLACE (ordered_at::TIMESTAMP AS ordered_at) FROM orders ANTI JOIN late USING (order_id);
CREATE VIEW distinct_payments AS SELECT DISTINCT * REPLACE (paid_at::TIMESTAMP AS paid_at) FROM payments;
CREATE VIEW distinct_views AS SELECT DISTINCT * REPLACE (viewed_at::TIMESTAMP AS viewed_at) FROM page_views;
CREATE VIEW sold AS
    SELECT *, quantity * price::DECIMAL(10, 2) AS amount, date_trunc('minute', ordered_at) AS minute
    FROM distinct_orders JOIN customers USING (customer_id) JOIN products USING (product_id);
CREATE VIEW numbered AS
    SELECT *, sum(begins) OVER (PARTITION BY customer_id ORDER BY viewed_at, view_id) AS number
    FROM (SELECT *, (viewed_at > lag(viewed_at) OVER (PARTITION BY customer_id ORDER BY viewed_at, view_id)
        + INTERVAL 2 MINUTE)::INT AS begins FROM distinct_views);
CREATE VIEW visits AS
    SELECT customer_id, min(viewed_at) AS started_at, max(viewed_at) + INTERVAL 2 MINUTE AS ended_at,
        count(*) AS views, count(DISTINCT page) AS pages
    FROM numbered GROUP BY customer_id, coalesce(number, 0);
"""
QUERIES = {
    "revenue": "SELECT category, minute, count(*), sum(amount)::DECIMAL(18, 2) FROM sold GROUP BY ALL",
    "revenue_history": "SELECT country, category, minute, count(*), sum(amount)::DECIMAL(18, 2) FROM sold GROUP BY ALL",
    "sessions": "SELECT customer_id, started_at, ended_at, views, pages FROM visits",
    "session_history": """
        SELECT customer_id, country, started_at, ended_at, views, pages FROM visits JOIN customers USING (customer_id)""",
    "alerts": """
        SELECT 'payment failed', order_id, NULL, method, paid_at FROM distinct_payments WHERE status = 'failed'
        UNION ALL
        SELECT 'not paid', order_id, name, product, ordered_at
        FROM sold o ANTI JOIN (FROM distinct_payments WHERE status = 'paid') p
            ON p.order_id = o.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 5 MINUTE""",
}


def expected(messages: Iterable[events.Message], late: Iterable[int]) -> dict[str, Rows]:
    """Return the rows of each table and topic, given the orders that were put aside as late."""
    rows: dict[str, list[dict[str, Any]]] = {"orders": [], "payments": [], "page_views": []}
    for message in messages:
        rows[message.topic].append(message.row)
    tables = {name: pa.Table.from_pylist(found) for name, found in rows.items()}
    with duckdb.connect() as con:
        for name, table in tables.items():
            con.register(name, table)
        con.register("late", pa.table({"order_id": pa.array(late, pa.int64())}))
        con.register("customers", _table(events.customers(), "customer_id", "name", "country"))
        con.register("products", _table(events.products(), "product_id", "product", "category", "price"))
        con.execute(VIEWS)
        return {name: Counter(con.execute(query).fetchall()) for name, query in QUERIES.items()}


def found(postgres: str, lake: Path, alerts: Iterable[Mapping[str, Any]]) -> dict[str, Rows]:
    """Return what is in each table and topic that the jobs write."""
    tables = {name: database_rows(postgres, f"SELECT * FROM {name}") for name in ("revenue", "sessions")}
    with duckdb.connect() as con:
        for name in ("revenue_history", "session_history"):
            con.register(name, DeltaTable(str(lake / name)).to_pyarrow_dataset())
            tables[name] = con.execute(f"FROM {name}").fetchall()
    tables["alerts"] = [
        (row["kind"], row["order_id"], row["customer"], row["detail"], datetime.fromisoformat(row["event_time"]))
        for row in alerts
    ]
    return {name: Counter(rows) for name, rows in tables.items()}


def database_rows(postgres: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query of the shop's database."""
    with psycopg.connect(postgres) as con:
        return con.execute(query).fetchall()


def late_orders(postgres: str) -> list[int]:
    """Return the orders that the jobs have put aside as late; one that was sent twice may be there twice."""
    return [order for (order,) in database_rows(postgres, "SELECT order_id FROM late_orders")]


def _table(rows: Iterable[tuple[Any, ...]], *names: str) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
