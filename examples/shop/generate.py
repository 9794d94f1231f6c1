"""Send the messages of the shop to Kafka, as the time of the shop passes."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable

import events
from confluent_kafka import Producer


def send(kafka: str, messages: Iterable[events.Message], speed: float = math.inf, prefix: str = "") -> int:
    """Send each message when its time has come; a second here is `speed` seconds of the shop.

    Return their number. Names of topics begin with `prefix`.
    """
    # An idempotent producer keeps the order of messages when it must send some again.
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, "enable.idempotence": True})
    began, number = time.monotonic(), 0
    for number, message in enumerate(messages, 1):
        early = began + message.sent / speed - time.monotonic()
        if early > 0:
            producer.poll(0)
            time.sleep(early)
        producer.produce(prefix + message.topic, message.value, str(message.key))
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT", help="a broker that has the topics")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another one makes another history")
    parser.add_argument("--minutes", type=float, default=24, metavar="N", help="how long the shop is open, in its time")
    parser.add_argument("--per-minute", type=float, default=1200, metavar="N", help="messages in a minute of the shop")
    parser.add_argument("--speed", type=float, default=20, metavar="N", help="how much faster its time passes")
    options = parser.parse_args()
    messages = events.messages(options.seed, options.minutes, options.per_minute)
    print(f"sent {send(options.kafka, messages, options.speed)} messages")


if __name__ == "__main__":
    main()
