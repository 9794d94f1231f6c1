"""The `elasticsearch` connector."""

from __future__ import annotations

from sqlstream.catalog import Table
from sqlstream.connectors.elasticsearch import client, options
from sqlstream.connectors.elasticsearch.documents import DocumentLayout
from sqlstream.connectors.elasticsearch.sink import ElasticsearchSink
from sqlstream.connectors.interface import Connector, Reach


class ElasticsearchConnector(Connector):
    """Indexes of Elasticsearch and OpenSearch."""

    name = "elasticsearch"
    summary = "an index of Elasticsearch or OpenSearch"
    reach = Reach.ELSEWHERE
    options = options.OPTIONS
    formats = ("json",)
    needs_format = False
    of_values = True
    sink_type = ElasticsearchSink

    def validate(self, table: Table) -> None:
        DocumentLayout(table).check()

    def prepare(self, table: Table) -> Table:
        client.nodes(table)
        return table
