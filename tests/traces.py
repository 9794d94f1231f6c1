"""Traces as tests read them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sqlstream.cli.traces import TraceEvent


class Span(TraceEvent):
    """A span, which has a thread and an end."""

    tid: int = 0

    @property
    def end(self) -> int:
        return self.ts + self.dur


class _File(msgspec.Struct):
    traceEvents: list[Span]


@dataclass
class Trace:
    """The spans of a trace, and the names of its processes and threads."""

    spans: list[Span]
    names: list[Span]

    def check_nesting(self) -> None:
        """Fail unless spans of a thread lie within each other, or after each other."""
        threads = defaultdict(list)
        for span in self.spans:
            threads[span.pid, span.tid].append(span)
        for spans in threads.values():
            around: list[Span] = []
            for span in sorted(spans, key=lambda s: (s.ts, -s.end)):
                while around and around[-1].end <= span.ts and around[-1].end < span.end:
                    around.pop()
                assert not around or span.end <= around[-1].end, (span, around[-1])
                around.append(span)


def read_trace(path: Path) -> Trace:
    """Return the trace in a file. Raises an error if it is no JSON, or has other events than Perfetto knows."""
    events = msgspec.json.decode(path.read_bytes(), type=_File).traceEvents
    assert {event.ph for event in events} <= {"X", "M"}
    return Trace([e for e in events if e.ph == "X"], [e for e in events if e.ph == "M"])
