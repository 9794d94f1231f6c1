"""The `print` connector."""

from __future__ import annotations

from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import Connector, Reach, SessionSink
from sqlstream.connectors.options import TEXT, TableOption

IDENTIFIER = TableOption("print-identifier", TEXT, "what stands before each row, and `>` behind it", mutable=True)


class PrintSink(SessionSink):
    """A table whose rows the session shows."""

    delivery = Delivery.AT_LEAST_ONCE
    delivery_reason = "a batch that is repeated after a crash is printed again"
    rollback = Rollback.NO_ROWS
    takes_changes = True


class PrintConnector(Connector):
    """Tables that show the rows that are written into them."""

    name = "print"
    summary = "prints its rows"
    reach = Reach.NOTHING
    options = (IDENTIFIER,)
    sink_type = PrintSink
