"""Bulk requests to Elasticsearch and OpenSearch, over elastic-transport, the lower layer of Elastic's client.

The client above it sends each request in the words of one version, and refuses servers of others and OpenSearch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.elasticsearch.options import (
    AUTHORITIES,
    HOSTS,
    PASSWORD,
    PATH_PREFIX,
    RETRIES,
    TIMES,
    USERNAME,
)
from sqlstream.connectors.extras import imported
from sqlstream.errors import BindError, DataError, JobError, OutageError
from sqlstream.secrets import masked, remember

# (index, id, document); without a document it is deleted.
Write = tuple[str, str, str | None]
SERVER = "Elasticsearch"
_SECONDS = 60.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
_NDJSON = {"content-type": "application/x-ndjson", "accept": "application/json"}
# Statuses after which a retry may succeed: too many requests, and servers that are not ready.
_PASSING = (429, 500, 502, 503, 504)
_SHOWN = 300


class NoNode(Exception):
    """No node answers, or takes the request or some of its documents; the text is the reason."""


def load(table: Table) -> ModuleType:
    """Return the module `elastic_transport`. Raises UsageError if it cannot be imported."""
    return imported(table, "elasticsearch", ["elastic_transport"], called="elastic-transport")


def nodes(table: Table) -> list[Any]:
    """Return the settings of the nodes that a table names. Raises BindError for an address that is none."""
    library, options = load(table), table.options
    remember(options)
    configs = []
    for url in (host.strip() for host in options[HOSTS.name].strip("; ").split(";")):
        try:
            config = library.client_utils.url_to_node_config(url)
        except ValueError:
            message = f'table "{table.name}": "{masked(url)}" is not the address of a node'
            hint = "Write its scheme, host and port, as http://localhost:9200; several with ; between them."
            raise BindError(message, table.option_span(HOSTS.name, value=True), hint=hint) from None
        headers = dict(config.headers)
        if USERNAME.name in options:
            login = (options[USERNAME.name], options.get(PASSWORD.name, ""))
            headers["authorization"] = library.client_utils.basic_auth_to_header(login)
        prefix = options.get(PATH_PREFIX.name, config.path_prefix).strip("/")
        configs.append(
            replace(
                config,
                headers=headers,
                path_prefix=f"/{prefix}" if prefix else "",
                request_timeout=_SECONDS,
                ca_certs=options.get(AUTHORITIES.name) if config.scheme == "https" else None,
            )
        )
    return configs


class BulkClient:
    """Writes and deletes documents of a table's indexes."""

    def __init__(self, table: Table):
        self._table, self._library = table, load(table)
        configs = nodes(table)
        # Each request is tried at all nodes; the waits between two rounds are ours.
        self._transport = self._library.Transport(
            configs,
            max_retries=len(configs) - 1,
            retry_on_timeout=True,
            retry_on_status=(502, 503, 504),
            meta_header=False,
        )
        self._retries = int(table.options.get(RETRIES.name, RETRIES.default))

    def check(self) -> None:
        """Ask whether a node answers and takes the login; with retries, as `write`.

        A user may write into an index, and not ask about the server.
        """
        self._attempt(lambda: self._request("HEAD", "/", None, accepted=(403, 404, 405)))

    def write(self, writes: Sequence[Write]) -> None:
        """Send writes in one request; those that no node takes are sent again, up to `sink.max-retries` times.

        Raises OutageError after the last retry, DataError for a document that is refused, and JobError for another refusal.
        """
        pending = list(writes)

        def send() -> None:
            nonlocal pending
            answer = self._request("POST", "/_bulk", b"".join(map(_lines, pending)))
            outcomes = [next(iter(item.values())) for item in answer["items"]]
            waiting = [self._is_waiting(*pair) for pair in zip(pending, outcomes, strict=True)]
            pending = [write for write, waits in zip(pending, waiting, strict=True) if waits]
            if pending:
                raise NoNode(_reason(outcomes[waiting.index(True)]["error"]))

        self._attempt(send)

    def close(self) -> None:
        self._transport.close()

    def _attempt(self, step: Callable[[], object]) -> None:
        delay = _FIRST_DELAY
        for attempt in range(self._retries + 1):
            try:
                step()
                return
            except NoNode as error:
                failed = error
            if attempt < self._retries:
                # A node that starts, or is busy, needs a moment.
                time.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
        tried = f" {attempt + 1} times" if attempt else ""
        message = f'writing table "{self._table.name}" failed{tried}: {failed}'
        hint = "No row is lost: run the job again, and it continues with the same batch."
        raise OutageError(message, self._table.span, hint=hint) from None

    def _request(self, method: str, route: str, body: bytes | None, accepted: Sequence[int] = ()) -> Any:
        """Return the answer as JSON. Raises NoNode if a retry may succeed, and JobError otherwise."""
        headers = _NDJSON if body is not None else {}
        try:
            meta, answer = self._transport.perform_request(method, route, body=body, headers=headers)
        except self._library.TlsError as error:
            message = f'writing table "{self._table.name}" failed: {_line(error.message)}'
            hint = f"Set '{AUTHORITIES.name}' to a file in PEM with the certificate of the authority of the nodes."
            raise JobError(message, self._table.span, hint=hint) from None
        except (self._library.TransportError, self._library.SerializationError) as error:
            raise NoNode(_line(error.message)) from None
        if meta.status < 300 or meta.status in accepted:
            return answer
        reason = f"status {meta.status}{_explanation(answer)}"
        if meta.status in _PASSING:
            raise NoNode(reason)
        message, hint = f'writing table "{self._table.name}" failed: {reason}', ""
        if meta.status in (401, 403):
            hint = f"Set '{USERNAME.name}' and '{PASSWORD.name}' to those of a user who may write documents."
        elif meta.status == 413:
            hint = "Raise http.max_content_length of the nodes, or that of the proxy before them."
        raise JobError(message, self._table.span, hint=hint or None)

    def _is_waiting(self, write: Write, outcome: Mapping[str, Any]) -> bool:
        """Whether a write is to be sent again. Raises DataError for a document that the server refuses."""
        error, status = outcome.get("error"), outcome["status"]
        if error is None or status in _PASSING:
            return error is not None
        index, id, document = write
        if document is None and "index_not_found" in error.get("type", ""):
            return False
        reason = _reason(error)
        message = f'{SERVER} refuses a row of table "{self._table.name}": {reason}'
        shown = "it was to be deleted" if document is None else shorten(document)
        hint = None
        if "of type [date]" in reason:
            hint = (
                f"Set '{TIMES.name}' = 'ISO-8601', or give the field a format that has the time as it is: "
                "yyyy-MM-dd HH:mm:ss.SSS."
            )
        raise DataError(message, self._table.span, detail=f'Document "{id}" of index "{index}": {shown}', hint=hint)


def shorten(document: str) -> str:
    """Return the start of a document, as messages show it."""
    return document if len(document) <= _SHOWN else f"{document[:_SHOWN]} .."


def _lines(write: Write) -> bytes:
    """Return the lines of a write in a bulk request.

    >>> _lines(("users", "1", '{"a":1}'))
    b'{"index":{"_index":"users","_id":"1"}}\\n{"a":1}\\n'
    >>> _lines(("users", "1", None))
    b'{"delete":{"_index":"users","_id":"1"}}\\n'
    """
    index, id, document = write
    place = json.dumps({"_index": index, "_id": id}, separators=(",", ":"))
    if document is None:
        return f'{{"delete":{place}}}\n'.encode()
    return f'{{"index":{place}}}\n{document}\n'.encode()


def _reason(error: Any) -> str:
    """Return the reasons of an error of the server in one line, with what caused it."""
    reasons = list[str]()
    while isinstance(error, Mapping):
        reasons.append(str(error.get("reason") or error.get("type")))
        error = error.get("caused_by")
    return _line(": ".join(reasons) if reasons else str(error))


def _explanation(answer: Any) -> str:
    """Return what an answer says about its status, behind a colon."""
    text = _reason(answer["error"]) if isinstance(answer, Mapping) and "error" in answer else _line(str(answer or ""))
    return f": {shorten(text)}" if text else ""


def _line(text: str) -> str:
    return masked(" ".join(text.split()))
