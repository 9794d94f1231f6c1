from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlstream import Context, Row, ValueState, process, state


@dataclass
class Session:
    begin: datetime
    # When it ends, unless there is another click.
    until: datetime
    clicks: int


class Sessions:
    """Sessions of clicks that come in the order of time: one ends when there was no click for the gap of the last ones."""

    session: ValueState[Session] = state()

    def gap(self, click: Row) -> timedelta:
        raise NotImplementedError

    def process(self, ctx: Context, click: Row) -> Iterator[Session]:
        session, now = self.session.value, ctx.event_time
        # The timer waits for the watermark: the click may come before it.
        if session is not None and now >= session.until:
            yield session
            session = None
        session = session or Session(now, now, 0)
        until = max(session.until, now + self.gap(click))
        self.session.value = Session(session.begin, until, session.clicks + 1)
        ctx.timers.at(until, "end")

    def on_timer(self, ctx: Context) -> Iterator[Session]:
        if self.session.value is not None:
            yield self.session.value
        ctx.clear()


@process
class FixedSessions(Sessions):
    """What SESSION does: the same gap after every click."""

    def __init__(self, minutes: int = 10):
        self.minutes = timedelta(minutes=minutes)

    def gap(self, click: Row) -> timedelta:
        return self.minutes


@process
class PatientSessions(Sessions):
    """Waits for twenty minutes after a look at an item, for one after a payment, else for five."""

    def gap(self, click: Row) -> timedelta:
        return timedelta(minutes={"item": 20, "pay": 1}.get(click.page, 5))
