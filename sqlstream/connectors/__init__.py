"""Sources, sinks and lookups: what tables with a `connector` read and write.

`Source`, `PushSource`, `Sink`, `UpsertSink`, `WriteAheadSink` and `TwoPhaseSink` are base classes for a project's own sources and
sinks, which tables use by the connector `python`. A connector in another package derives from the classes of
`sqlstream.connectors.interface`.
"""

from sqlstream.connectors.manual import reference
from sqlstream.connectors.python.classes import (
    OwnTable,
    Sink,
    Source,
    TwoPhaseSink,
    UpsertSink,
    WriteAheadSink,
)
from sqlstream.connectors.python.pushed import PushSource
from sqlstream.storage.zsets import WEIGHT

__all__ = [
    "WEIGHT",
    "OwnTable",
    "PushSource",
    "Sink",
    "Source",
    "TwoPhaseSink",
    "UpsertSink",
    "WriteAheadSink",
    "reference",
]
