"""What the demo shows: revenue per minute from PostgreSQL, open sessions from the state of the job, and alerts from Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import events
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

MINUTES, SESSIONS, ALERTS = 8, 7, 6


class Screen:
    """Tables that change in place on a terminal, and are printed now and then elsewhere."""

    def __init__(self, console: Console, every: float):
        self.console = console
        self._every, self._printed = every, 0.0
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def running(self) -> AbstractContextManager[object]:
        return self.live or nullcontext()

    def show(self, now: float, content: RenderableType) -> None:
        """Show the tables as of now, in seconds since any moment."""
        if self.live:
            self.live.update(content, refresh=True)
        elif now >= self._printed + self._every:
            self._printed = now
            self.console.print(content)

    def say(self, text: str) -> None:
        """Print a line above the tables."""
        self.console.print(text, style="bold", markup=False)


def tables(
    clock: str,
    revenue: Sequence[tuple[Any, ...]],
    sessions: Sequence[Mapping[str, Any]],
    open_sessions: int,
    alerts: Sequence[Mapping[str, Any]],
) -> RenderableType:
    """Lay the tables out. `revenue` has a row for each minute and category."""
    side = Group(_sessions(sessions, open_sessions), _alerts(alerts))
    title = f"the shop at {clock}"
    return Panel(Columns([_revenue(revenue), side], padding=(0, 3)), title=title, title_align="left", expand=False)


def _revenue(rows: Iterable[tuple[Any, ...]]) -> Table:
    table = Table(title="revenue per minute (PostgreSQL)", title_justify="left", box=None, header_style="bold")
    for name in ("minute", *events.CATEGORIES, "total"):
        table.add_column(name, justify="right")
    minutes: dict[Any, dict[str, Any]] = {}
    for category, minute, _, amount in rows:
        minutes.setdefault(minute, {})[category] = amount
    for minute in sorted(minutes)[-MINUTES:]:
        amounts = minutes[minute]
        cells = [f"{amounts.get(category, 0):,.0f}" for category in events.CATEGORIES]
        table.add_row(f"{minute:%H:%M}", *cells, Text(f"{sum(amounts.values()):,.0f}", style="bold"))
    return table


def _sessions(rows: Sequence[Mapping[str, Any]], number: int) -> Table:
    title = f"{number} open sessions (live state)"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for name in ("customer", "since", "views", "pages"):
        table.add_column(name, justify="right")
    for row in rows[:SESSIONS]:
        table.add_row(*(str(row[name]) for name in ("customer_id", "since", "views", "pages")))
    return table


def _alerts(rows: Sequence[Mapping[str, Any]]) -> Table:
    title = f"{len(rows)} alerts (Kafka), the newest"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for name in ("time", "alert", "order", "of"):
        table.add_column(name)
    for row in rows[-ALERTS:]:
        of = f"{row['customer']}, {row['detail']}" if row["customer"] else row["detail"]
        table.add_row(str(row["event_time"])[11:19], Text(row["kind"], style="red"), str(row["order_id"]), of)
    return table
