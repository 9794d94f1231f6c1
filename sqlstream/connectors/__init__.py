"""Sources, sinks and lookups: what tables with a `connector` read and write."""

from sqlstream.connectors.python.classes import Sink, Source

__all__ = ["Sink", "Source"]
