"""Batch descriptors: which splits of which scans a micro-batch reads. The driver stores them, and passes them to the engine.

A descriptor is a text with one line of JSON per split or tick. A tick advances a scan's watermark without a row: of an idle scan,
at the end of input, and after a restart. A repeated batch reads the same descriptor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapreplace
from typing import Any

from sqlstream.connectors.discovery import Json, Split
from sqlstream.connectors.interface import MANY_ROWS, TableSource
from sqlstream.units import EventTime, ProcessingTime, from_millis, to_millis


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What one micro-batch reads: splits and ticks (watermarks) of scans, by the index of the scan in the plan.

    `time` is when the driver composed it, and what NOW() returns before the first exchange. The `last` one ends the input. With
    `fires_timers` the batch calls the operators that have processing-time timers. With `opens`, in the first batch only, it runs
    the opening fragments of operators, which emit rows before any input. `arrived` has, for each split of a scan, the position
    of its first row in the order of arrival (see `ARRIVED`). `own_watermarks` says whether operators have watermarks of their
    own, as in the plan: batches of earlier versions of sqlstream had one watermark for all, and verification replays them so.
    `clock` is set in a job over processing time and event time: the watermark, after the batch, of its operators over processing
    time. It is END_OF_INPUT once all input has ended.
    """

    sequence: int
    time: ProcessingTime
    splits: Mapping[int, Sequence[Split]]
    ticks: Mapping[int, EventTime]
    last: bool = False
    fires_timers: bool = False
    opens: bool = False
    arrived: Mapping[int, Sequence[int]] = field(default_factory=dict)
    own_watermarks: bool = False
    clock: EventTime | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """One line of a descriptor, for the task that reads for `slot`. The other fields are as in Descriptor."""

    slot: int
    scan: int
    sequence: int
    time: ProcessingTime
    last: bool
    # The split as a JSON value, which the scan's source parses.
    split: Sequence[Any] | None = None
    tick: EventTime | None = None
    fires_timers: bool = False
    opens: bool = False
    # The position of the split's first row in the order of arrival; earlier versions of sqlstream did not write it.
    arrived: int = 0
    own_watermarks: bool = False
    clock: EventTime | None = None


class PositionAllocator:
    """Gives splits their positions in the order of arrival: splits of an earlier batch come before splits of a later one.

    Within a batch the splits of a scan come before the splits of later scans, and splits of one scan are in the order in which
    its source lists them. `following` is the next free position.
    """

    def __init__(self, sources: Sequence[TableSource], following: int = 0):
        self._sources, self.following = sources, following

    def give(self, splits: Mapping[int, Sequence[Split]]) -> dict[int, list[int]]:
        """Return, by scan, the position of the first row of each split of a batch, and reserve positions for all their rows."""
        positions: dict[int, list[int]] = {}
        for scan, of_scan in sorted(splits.items()):
            for split in of_scan:
                positions.setdefault(scan, []).append(self.following)
                self.following += self._sources[scan].most_rows(split)
        return positions

    def skip(self, work: Iterable[Work]) -> None:
        """Move `following` behind the positions of all splits in a descriptor."""
        self.following = after_all(work, self.following)


def after_all(work: Iterable[Work], following: int = 0) -> int:
    """Return a position in the order of arrival, `following` or later, that is after all rows of a descriptor's splits."""
    return max([following, *(one.arrived + MANY_ROWS for one in work if one.split is not None)])


def to_lines(descriptor: Descriptor, slots: Sequence[int]) -> str:
    """Return the text of a descriptor. Each split, the largest first, goes to the slot with the fewest bytes so far."""
    # A heap of slots by load, then by index.
    load = [(0, index, slot) for index, slot in enumerate(slots)]
    lines: list[dict[str, Json]] = []
    head = {"sequence": descriptor.sequence, "time": to_millis(descriptor.time), "last": descriptor.last}
    if descriptor.own_watermarks:
        head["own_clocks"] = True
    if descriptor.clock is not None:
        head["clock"] = descriptor.clock
    for scan, splits in descriptor.splits.items():
        arrived = descriptor.arrived.get(scan) or [0] * len(splits)
        for split, first in sorted(zip(splits, arrived, strict=True), key=lambda pair: -pair[0].bytes):
            size, index, slot = load[0]
            heapreplace(load, (size + max(split.bytes, 1), index, slot))
            lines.append({"slot": slot, "scan": scan, **head, "split": split.to_list(), "arrived": first})
    for scan, tick in descriptor.ticks.items():
        lines.append({"slot": slots[scan % len(slots)], "scan": scan, **head, "tick": tick})
    calls = {name: True for name in ("fires_timers", "opens") if getattr(descriptor, name)}
    if calls or (descriptor.clock is not None and not lines):
        lines.append({"slot": slots[0], "scan": 0, **head, **calls})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def from_lines(text: str) -> list[Work]:
    """Parse the text of a descriptor, or some of its lines."""
    return [_work(json.loads(line)) for line in text.splitlines() if line]


def _work(line: dict[str, Any]) -> Work:
    own = line.pop("own_clocks", False)
    return Work(**{**line, "time": from_millis(line["time"])}, own_watermarks=own)


def by_slot(text: str, slots: Sequence[int]) -> list[str]:
    """Return the lines of a descriptor for each slot, in the order of `slots`; a text may be empty.

    The lines of slots that no longer exist are distributed over the slots that do.
    """
    lines: dict[int, list[str]] = {slot: [] for slot in slots}
    for line in text.splitlines():
        slot = json.loads(line)["slot"]
        lines[slot if slot in lines else slots[slot % len(slots)]].append(line)
    return ["\n".join(slot_lines) for slot_lines in lines.values()]
