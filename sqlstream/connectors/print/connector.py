"""The `print` connector."""

from __future__ import annotations

from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import Connector, Reach, SessionSink


class Printed(SessionSink):
    """Rows that are shown."""

    delivery = Delivery.AT_LEAST_ONCE
    delivery_reason = "a batch that is repeated after a crash is printed again"
    rollback = Rollback.NO_ROWS
    takes_changes = True


class PrintConnector(Connector):
    """Tables that show what is written into them."""

    name = "print"
    summary = "prints its rows"
    reach = Reach.NOTHING
    sink_type = Printed
