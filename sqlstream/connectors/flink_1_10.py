"""Options of tables as Flink had them before 1.11, which begin with `connector.type`, in the words of today's Flink."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlstream.connectors.translation import UntranslatableTable

TYPE = "connector.type"
_DROPPED = re.compile(
    r"connector\.(version|property-version|table\.type|document-type|key-null-literal)|update-mode|schema\..*"
    r"|format\.(derive-schema|property-version|schema|json-schema|avro-schema|record-class)"
)
_PROPERTY = re.compile(r"connector\.properties\.(\d+)\.(key|value)")
_RENAMED = {
    "connector.startup-mode": "scan.startup.mode",
    "connector.specific-offsets": "scan.startup.specific-offsets",
    "connector.startup-timestamp-millis": "scan.startup.timestamp-millis",
    "connector.sink-partitioner": "sink.partitioner",
    "connector.table": "table-name",
    "connector.write.flush.max-rows": "sink.buffer-flush.max-rows",
    "connector.write.flush.interval": "sink.buffer-flush.interval",
    "connector.write.max-retries": "sink.max-retries",
    "connector.read.fetch-size": "scan.fetch-size",
    "connector.key-delimiter": "document-id.key-delimiter",
    "connector.flush-on-checkpoint": "sink.flush-on-checkpoint",
    "connector.connection-max-retry-timeout": "connection.max-retry-timeout",
    "connector.connection-path-prefix": "connection.path-prefix",
    "format.type": "format",
}
_BULK = "connector.bulk-flush."
_READ = "connector.read.partition."


def rewritten(options: Mapping[str, str]) -> dict[str, str]:
    """Return the name that each option has today, by its name before; options without a counterpart are left out.

    The name of the connector is that of `connector.type`: see `connector_of`.

    >>> rewritten({"connector.type": "kafka", "connector.topic": "t", "format.type": "csv", "format.field-delimiter": ";"})
    {'connector.type': 'connector', 'connector.topic': 'topic', 'format.type': 'format', \
'format.field-delimiter': 'csv.field-delimiter'}
    """
    names = dict[str, str]()
    for option in options:
        if option == TYPE:
            names[option] = "connector"
        elif _DROPPED.fullmatch(option):
            continue
        elif (numbered := _PROPERTY.fullmatch(option)) is not None:
            if numbered[2] == "value" and (key := options.get(f"connector.properties.{numbered[1]}.key")):
                names[option] = f"properties.{key}"
        elif option in _RENAMED:
            names[option] = _RENAMED[option]
        elif option.startswith(_READ):
            names[option] = f"scan.partition.{option.removeprefix(_READ)}"
        elif option.startswith(_BULK):
            names[option] = f"sink.bulk-flush.{option.removeprefix(_BULK)}"
        elif option.startswith("format."):
            names[option] = f"{options.get('format.type', 'json').lower()}.{option.removeprefix('format.')}"
        else:
            names[option] = option.removeprefix("connector.")
    return names


def connector_of(options: Mapping[str, str]) -> str:
    """Return the name of today's connector.

    >>> connector_of({"connector.type": "kafka", "update-mode": "upsert"}), connector_of({"connector.type": "elasticsearch"})
    ('upsert-kafka', 'elasticsearch-7')
    """
    kind = options[TYPE].lower()
    if kind == "kafka" and options.get("update-mode", "").lower() == "upsert":
        return "upsert-kafka"
    if kind == "elasticsearch":
        return f"elasticsearch-{options.get('connector.version', '7').partition('.')[0]}"
    return kind


def today(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table in today's words."""
    return {
        name: connector_of(options) if name == "connector" else options[before]
        for before, name in rewritten(options).items()
    }


def refusal(options: Mapping[str, str]) -> UntranslatableTable:
    """Return the error for a table with options of Flink before 1.11; its hint has the clause that takes their place."""
    clause = ", ".join(f"'{name}' = '{_quoted(value)}'" for name, value in today(options).items())
    return UntranslatableTable("options of Flink before 1.11", TYPE, f"Write WITH ({clause}).")


def _quoted(text: str) -> str:
    return text.replace("'", "''")
