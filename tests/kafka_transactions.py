"""Kills of a broker that lose no transaction: what its own log says of transactions, read from its files.

A transaction ends in two steps: its coordinator writes down how it ends, and answers the client; then markers are written to the
partitions. A cluster of one node that is killed between the two may lose the transaction. When it starts again, the coordinator
goes on before the node knows its topics (seen with Kafka 4.3.1 and 4.4.0): it takes their partitions for deleted, and leaves out
the markers. No client can prevent that, so a test that looks for what sqlstream loses kills a broker at other moments.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.kafka_broker import Broker
from tests.processes import wait_until

_ENDING = {2, 3}  # PREPARE_COMMIT, PREPARE_ABORT
_HEADER = 61
_STATE_AT = 2 + 8 + 2 + 4  # behind version, producer id, epoch, timeout


def kill_between_transactions(broker: Broker) -> None:
    """Kill a broker that this process has started, at a moment at which no transaction waits for its markers."""

    def is_killed() -> bool:
        suspend(broker)
        if not none_is_ending(broker.folder / "data"):
            os.kill(broker.pid, signal.SIGCONT)
            return False
        broker.kill()
        return True

    wait_until(is_killed)


def suspend(broker: Broker) -> None:
    """Stop a broker in its tracks, and return when its last thread stands still."""
    os.kill(broker.pid, signal.SIGSTOP)
    os.waitpid(broker.pid, os.WUNTRACED)


def none_is_ending(data: Path) -> bool:
    """Whether no transaction waits for its markers, in the log of a broker that does not run."""
    states: dict[bytes, int] = {}
    for file in sorted(data.glob("__transaction_state-*/*.log")):
        for key, value in _records(file.read_bytes()):
            if len(value) > _STATE_AT:
                states[key] = value[_STATE_AT]
            else:
                states.pop(key, None)
    return not _ENDING & set(states.values())


def _records(log: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + _HEADER <= len(log):
        length, count = struct.unpack_from(">i", log, at + 8)[0], struct.unpack_from(">i", log, at + 57)[0]
        end = at + 12 + length
        if end > len(log):
            return
        attributes = struct.unpack_from(">h", log, at + 21)[0]
        if not attributes & 0x27:  # neither compressed nor a control batch
            place = at + _HEADER
            for _ in range(count):
                size, place = _varint(log, place)
                key, value = _record(log, place)
                yield key, value
                place += size
        at = end


def _record(log: bytes, at: int) -> tuple[bytes, bytes]:
    _, at = _varint(log, at + 1)  # attributes, then the difference in time
    _, at = _varint(log, at)
    key, at = _bytes(log, at)
    value, _ = _bytes(log, at)
    return key, value


def _bytes(log: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(log, at)
    return (b"", at) if size < 0 else (log[at : at + size], at + size)


def _varint(log: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = log[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
