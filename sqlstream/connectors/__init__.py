"""Sources, sinks and lookups: what tables with a `connector` read and write.

`Source` and `Sink` are what classes of a project's own derive from, for the connector `python`. A connector of another package
derives from the classes of `sqlstream.connectors.interface`.
"""

from sqlstream.connectors.manual import reference
from sqlstream.connectors.python.classes import Sink, Source

__all__ = ["Sink", "Source", "reference"]
