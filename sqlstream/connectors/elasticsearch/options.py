"""Options of indexes. The names are Flink's, where Flink has the option."""

from __future__ import annotations

from sqlstream.connectors.formats.json_options import timestamp_format
from sqlstream.connectors.options import NAME, NUMBER, TEXT, TableOption

HOSTS = TableOption(
    "hosts",
    NAME,
    "addresses of nodes, separated by `;`; requests go to those that answer",
    required=True,
    example="http://localhost:9200",
    mutable=True,
)
INDEX = TableOption(
    "index",
    NAME,
    "the index of a row's document; `{column}` stands for a value of the row, of which a time may have a pattern",
    required=True,
    example="users",
)
DELIMITER = TableOption(
    "document-id.key-delimiter", TEXT, "the text between the columns of the PRIMARY KEY in the id of a document", "_"
)
USERNAME = TableOption("username", TEXT, "the user, with HTTP basic authentication", mutable=True)
PASSWORD = TableOption("password", TEXT, "the password of the user", mutable=True)
PATH_PREFIX = TableOption(
    "connection.path-prefix", TEXT, "what the path of each request begins with, as a proxy wants it", mutable=True
)
AUTHORITIES = TableOption(
    "ssl.truststore.location",
    NAME,
    "a PEM file with the certificates that `https` is trusted by, in place of those of the library certifi",
    mutable=True,
)
RETRIES = TableOption(
    "sink.max-retries",
    NUMBER,
    "how often a request is sent again while no node answers or takes it, each time after a longer wait",
    "10",
    mutable=True,
)
TIMES = timestamp_format("json")
# The format of documents is JSON, whether a table says so or not.
OPTIONS = (
    HOSTS,
    INDEX,
    DELIMITER,
    USERNAME,
    PASSWORD,
    PATH_PREFIX,
    AUTHORITIES,
    RETRIES,
    TIMES,
)
