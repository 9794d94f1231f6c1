"""The names that Flink's connectors for Elasticsearch and OpenSearch have: all are one connector here.

The requests that it sends are the same for all versions of these servers.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlstream.connectors.translation import TranslatedOptions

NAMES = ("elasticsearch-7", "elasticsearch-8", "opensearch", "opensearch-2")


def translated(options: Mapping[str, str]) -> TranslatedOptions:
    """Return the options of a table of one of `NAMES` with the name of the connector here.

    >>> dict(translated({"connector": "elasticsearch-7", "index": "users"}).options)
    {'connector': 'elasticsearch', 'index': 'users'}
    """
    return TranslatedOptions({**options, "connector": "elasticsearch"}, {name: name for name in options})
