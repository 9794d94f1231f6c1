"""What happens in the shop: visits, orders and payments by chance, and the messages that tell of them. One seed, one history.

A message is sent soon after its event, but some are held up for most of a minute, some are sent twice, and some orders come from
phones that were offline for minutes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

OPENED = datetime(2026, 3, 2, 9)
CUSTOMERS, PRODUCTS = 2000, 60
COUNTRIES = ("DE", "FR", "NL", "SE", "US")
CATEGORIES = ("books", "garden", "kitchen", "music", "toys")
PAGES = ("home", "search", "product", "reviews", "cart", "help")
VIEWS_PER_VISIT = 7.0
MESSAGES_PER_VISIT = VIEWS_PER_VISIT + 0.5 * 2.1
# Nobody comes in the last minutes, in which orders are still paid.
CLOSING = 240.0
# The watermark of the tables is a minute behind; no message but those of phones is held up for longer.
HELD_UP = 55.0


@dataclass(frozen=True, slots=True)
class Message:
    """A message to a topic, and when it is sent: in seconds of the shop's time since it opened."""

    sent: float
    topic: str
    key: int
    row: dict[str, Any]

    @property
    def value(self) -> bytes:
        return json.dumps(self.row).encode()


def customers() -> list[tuple[int, str, str]]:
    """Return the rows of the table of customers."""
    return [(i, f"customer {i}", COUNTRIES[i % 7 % len(COUNTRIES)]) for i in range(CUSTOMERS)]


def products() -> list[tuple[int, str, str, str]]:
    """Return the rows of the table of products; prices are text."""
    prices = random.Random(1)
    return [
        (i, f"{category} {i:02}", category, f"{prices.randrange(300, 9000) / 100:.2f}")
        for i in range(PRODUCTS)
        for category in [CATEGORIES[i % len(CATEGORIES)]]
    ]


def messages(seed: int, minutes: float, per_minute: float) -> list[Message]:
    """Return all messages of the first minutes, some `per_minute` of them, in the order in which they are sent."""
    chance = random.Random(seed)
    sent = [again for message in _events(chance, minutes * 60, per_minute) for again in _sendings(chance, message)]
    end = minutes * 60
    return sorted((m for m in sent if m.sent < end), key=lambda m: m.sent)


def _events(chance: random.Random, end: float, per_minute: float) -> Iterator[Message]:
    """Yield a message for each event, sent at once."""
    now, number = 0.0, 0
    while True:
        now += chance.expovariate(per_minute / MESSAGES_PER_VISIT / 60)
        if now > end - CLOSING:
            return
        number += 1
        yield from _visit(chance, number, now)


def _visit(chance: random.Random, number: int, time: float) -> Iterator[Message]:
    """Yield the page views of a customer, and perhaps an order with its payments."""
    customer = chance.randrange(CUSTOMERS)
    views = 1 + min(int(chance.expovariate(1 / (VIEWS_PER_VISIT - 1))), 25)
    for view in range(views):
        ids = {"view_id": number * 100 + view, "customer_id": customer}
        page = PAGES[0] if view == 0 else chance.choice(PAGES)
        yield Message(time, "page_views", customer, {**ids, "page": page, "viewed_at": clock(time)})
        # Most read for seconds; some go away, and come back to another session.
        time += chance.expovariate(1 / 8) if chance.random() < 0.97 else chance.uniform(100, 200)
    if chance.random() < 0.5:
        what = {"product_id": chance.randrange(PRODUCTS), "quantity": chance.choice((1, 1, 1, 2, 3))}
        row = {"order_id": number, "customer_id": customer, **what, "ordered_at": clock(time)}
        yield Message(time, "orders", number, row)
        yield from _payments(chance, number, time)


def _payments(chance: random.Random, order: int, time: float) -> Iterator[Message]:
    """Yield the attempts to pay an order: one in twenty fails, and half of those are not tried again. Some never pay."""
    if chance.random() < 0.02:
        return
    method = chance.choice(("card", "card", "transfer", "wallet"))
    for attempt in range(4):
        time += 3 + chance.expovariate(1 / 30)
        failed = chance.random() < 0.05
        ids = {"payment_id": order * 10 + attempt, "order_id": order}
        status = "failed" if failed else "paid"
        yield Message(time, "payments", order, {**ids, "method": method, "status": status, "paid_at": clock(time)})
        if not failed or chance.random() < 0.5:
            return


def _sendings(chance: random.Random, message: Message) -> Iterator[Message]:
    """Yield a message as often as it is sent, each with its delay."""
    delay = min(chance.expovariate(1 / 2), 10.0) if chance.random() < 0.97 else chance.uniform(10, HELD_UP)
    if message.topic == "orders" and chance.random() < 0.01:
        delay = chance.uniform(180, 480)
        yield _after(message, delay)
        return
    yield _after(message, delay)
    if chance.random() < 0.02:
        yield _after(message, chance.uniform(delay, HELD_UP))


def _after(message: Message, delay: float) -> Message:
    return Message(message.sent + delay, message.topic, message.key, message.row)


def clock(seconds: float) -> str:
    """Return a time of the shop as messages write it."""
    return (OPENED + timedelta(milliseconds=round(seconds * 1000))).isoformat(sep=" ", timespec="milliseconds")
