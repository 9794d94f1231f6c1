"""Options in URIs, of stores and of pyarrow's file systems: `s3://bucket/in/part-?.json?region=eu-west-1`."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

# Names of options, with those of credentials, which are refused.
_STORES = {"endpoint_override", "endpoint", "region", "scheme"}
_CREDENTIALS = {"access_key", "secret_key", "session_token", "client_secret"}
_PYARROW = {
    *("allow_bucket_creation", "allow_bucket_deletion", "background_writes", "tls_ca_file_path"),
    *("user", "replication", "buffer_size", "default_block_size", "kerb_ticket"),
    *("location", "project_id", "retry_limit_seconds"),
    *("blob_storage_authority", "dfs_storage_authority", "enable_tls", "credential_kind", "tenant_id", "client_id"),
}
_NAMES = _STORES | _CREDENTIALS | _PYARROW
# The options of a token of Azure, and the schemes whose options are also Hadoop's, such as dfs.replication.
_AZURE = {"sig", "sv", "sp", "st", "se", "spr", "sr", "ss", "srt"}
_HADOOP = ("hdfs", "viewfs")


def split_options(uri: str) -> tuple[str, str]:
    """Return a URI without its options, and the options with the `?` in front of them, "" if there are none.

    They begin at the first `?` behind which an option of some file system is set. Any other `?` is a wildcard, or part of a name.

    >>> split_options("s3://b/in?endpoint_override=localhost:9000&scheme=http")
    ('s3://b/in', '?endpoint_override=localhost:9000&scheme=http')
    >>> split_options("s3://b/day=1/part-?.json"), split_options("s3://b/in/day=?/x-?.json?region=eu&scheme=http")
    (('s3://b/day=1/part-?.json', ''), ('s3://b/in/day=?/x-?.json', '?region=eu&scheme=http'))
    >>> split_options("s3://b/day?hour=1/part.json"), split_options("s3://b/in?sig=1"), split_options("abfs://b/in?sig=1")
    (('s3://b/day?hour=1/part.json', ''), ('s3://b/in?sig=1', ''), ('abfs://b/in', '?sig=1'))
    """
    start = next((mark.start() for mark in re.finditer(r"\?", uri) if _sets_option(uri, mark.end())), len(uri))
    return uri[:start], uri[start:]


def may_set_options(path: str) -> bool:
    """Whether some library may find options in the path that `split_options` returns.

    >>> may_set_options("s3://b/x?a&region=eu"), may_set_options("s3://b/day=1/part-?.json")
    (True, False)
    """
    return any(_sets_option(path, mark.end()) for mark in re.finditer(r"[?&]", path))


def _sets_option(uri: str, start: int) -> bool:
    """Whether the text at an index sets an option, as `region=eu` does."""
    if (named := re.match(r"([^=&?/]+)=", uri[start:])) is None:
        return False
    name, scheme = unquote_plus(named[1]), uri.partition("://")[0].lower()
    is_of_scheme = (scheme in _HADOOP and "." in name) or (scheme.startswith("abfs") and name in _AZURE)
    return name in _NAMES or is_of_scheme
