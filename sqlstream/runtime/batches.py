"""Batch descriptors: which splits of which scans one micro-batch reads. The driver writes them down, and gives them to Spark.

One text per batch, one line per split or tick. A tick says that a scan's watermark is at least so far, without a row: at the
end of input, and after a restart, when a scan may have nothing new to say. A repeated batch reads the same descriptor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import Any

from sqlstream.connectors.discovery import Json, Split
from sqlstream.units import EventTime, ProcessingTime, from_millis, to_millis


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What one micro-batch reads: splits per scan (by its place in the plan), and ticks (watermarks) per scan.

    `time` is when it was decided: the NOW() of everything before the first exchange. With `fires_timers` operators are
    called whose processing-time timers are due; the first one `opens` those that know something before there is a row.
    """

    sequence: int
    time: ProcessingTime
    splits: Mapping[int, Sequence[Split]]
    ticks: Mapping[int, EventTime]
    last: bool = False
    fires_timers: bool = False
    opens: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One line of a descriptor, for the task with the given slot."""

    slot: int
    scan: int
    sequence: int
    time: ProcessingTime
    last: bool
    # As JSON holds it: the scan's source makes a split of it.
    split: Sequence[Any] | None = None
    tick: EventTime | None = None
    fires_timers: bool = False
    opens: bool = False


def to_lines(descriptor: Descriptor, slots: Sequence[int]) -> str:
    """Return the descriptor as JSON lines; splits go to the slot with the fewest bytes so far."""
    # By their load, then in their order.
    load = [(0, place, slot) for place, slot in enumerate(slots)]
    lines: list[dict[str, Json]] = []
    head = {"sequence": descriptor.sequence, "time": to_millis(descriptor.time), "last": descriptor.last}
    for scan, splits in descriptor.splits.items():
        for split in sorted(splits, key=lambda s: -s.bytes):
            size, place, slot = load[0]
            heapreplace(load, (size + max(split.bytes, 1), place, slot))
            lines.append({"slot": slot, "scan": scan, **head, "split": split.to_list()})
    for scan, tick in descriptor.ticks.items():
        lines.append({"slot": slots[scan % len(slots)], "scan": scan, **head, "tick": tick})
    calls = {name: True for name in ("fires_timers", "opens") if getattr(descriptor, name)}
    if calls:
        lines.append({"slot": slots[0], "scan": 0, **head, **calls})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def from_lines(text: str) -> list[Work]:
    """Parse a descriptor, or some of its lines."""
    lines = (json.loads(line) for line in text.splitlines() if line)
    return [Work(**{**line, "time": from_millis(line["time"])}) for line in lines]


def by_slot(text: str, slots: Sequence[int]) -> list[str]:
    """Return a descriptor's lines for each slot, which may be none.

    One that was written for more slots than there are now is dealt out to these.
    """
    lines: dict[int, list[str]] = {slot: [] for slot in slots}
    for line in text.splitlines():
        slot = json.loads(line)["slot"]
        lines[slot if slot in lines else slots[slot % len(slots)]].append(line)
    return ["\n".join(found) for found in lines.values()]
