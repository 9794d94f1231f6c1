"""Sources and sinks: what tables with a `connector` read and write."""

from sqlstream.connectors.interface import Sink, Source

__all__ = ["Sink", "Source"]
