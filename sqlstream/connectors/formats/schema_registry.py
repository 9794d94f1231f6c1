"""A client of schema registries with Confluent's protocol: schemas by their ids, and the ids of schemas under subjects.

A message in the wire format begins with a byte 0 and the id of its schema, in four bytes. The client uses few routes, over
`urllib`. The schema of an id never changes, so a process asks for it once.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from sqlstream.catalog import Table
from sqlstream.connectors.options import BOOLEAN, NAME, TEXT, OptionType, TableOption
from sqlstream.errors import DataError, JobError, OutageError
from sqlstream.secrets import masked, remember
from sqlstream.units import parse_boolean

# The first byte of a message, and the bytes before its body.
MAGIC, HEAD = 0, 5
TOPIC, RECORD, TOPIC_RECORD = "topic", "record", "topic-record"
# The parts of a message, as the subjects of topics call them.
KEY_PART, VALUE_PART = "key", "value"
_CA, _CERTIFICATE = "ssl.truststore.location", "ssl.keystore.location"
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_HOST = (62, 64)
_TYPE = "application/vnd.schemaregistry.v1+json"
_SECONDS, _TRIES, _PAUSE = 10.0, 4, 0.25
_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION = 40403, 40401, 40402


def _strategy(text: str) -> str:
    if text not in (TOPIC, RECORD, TOPIC_RECORD):
        raise ValueError(f'"{text}" is not one of {TOPIC}, {RECORD}, {TOPIC_RECORD}')
    return text


def registry_options(format: str) -> tuple[TableOption, ...]:
    """Return the options of a format that uses a schema registry."""
    return (
        TableOption(
            f"{format}.url",
            NAME,
            "the schema registry; several URLs, with commas between them, are tried in turn",
            required=True,
            example="http://localhost:8081",
        ),
        TableOption(f"{format}.basic-auth.user-info", TEXT, "the user and the password, as `user:password`"),
        TableOption(f"{format}.bearer-auth.token", TEXT, "the token of a bearer"),
        TableOption(
            f"{format}.{_CA}",
            NAME,
            "a PEM file with the certificates that `https` is trusted by, in place of the system's",
            mutable=True,
        ),
        TableOption(
            f"{format}.{_CERTIFICATE}",
            NAME,
            "a PEM file with the key and the certificate of the client, where the registry wants one",
            mutable=True,
        ),
        TableOption(
            f"{format}.subject", NAME, "the subject of written schemas, and of the one that a table without columns has"
        ),
        TableOption(
            f"{format}.subject-name-strategy",
            OptionType("strategy", _strategy),
            f"the subject, unless it is given: `{TOPIC}` (`<topic>-value`, of keys `<topic>-key`), "
            f"`{RECORD}` (the name of the record), "
            f"or `{TOPIC_RECORD}` (`<topic>-<record>`)",
            default=TOPIC,
        ),
        TableOption(
            f"{format}.auto-register",
            BOOLEAN,
            "whether the schema of written rows is registered; `false`: it must be there",
            default="true",
        ),
    )


class NoSchema(Exception):
    """The registry has no schema with an id, or none under a subject."""


class IncompatibleSchema(Exception):
    """The registry rejects a schema that is not compatible with the other schemas of its subject."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in a registry: its `text`, its `kind` (`AVRO`, `PROTOBUF`), and its id, -1 if it is unknown.

    `references` has (name, schema) of the schemas that it imports.
    """

    text: str
    kind: str = "AVRO"
    id: int = -1
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A client of a schema registry. Its methods raise OutageError if no URL answers, and JobError if the registry refuses.

    `authorization` is the value of the HTTP header. `authorities` and `certificate` are paths of PEM files: the certificates that
    `https` trusts, and the client's key and certificate.
    """

    urls: tuple[str, ...]
    authorization: str | None = None
    authorities: str | None = None
    certificate: str | None = None

    @classmethod
    def of(cls, table: Table, format: str) -> SchemaRegistry:
        """Return the client for the registry in a table's options."""
        options = table.options
        authorization = None
        if user := options.get(f"{format}.basic-auth.user-info"):
            authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
        elif token := options.get(f"{format}.bearer-auth.token"):
            authorization = f"Bearer {token}"
        remember(options)
        urls = tuple(u.strip().rstrip("/") for u in options[f"{format}.url"].split(","))
        return cls(urls, authorization, options.get(f"{format}.{_CA}"), options.get(f"{format}.{_CERTIFICATE}"))

    def by_id(self, id: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema of an id; with `serialized`, its text is a Protobuf file descriptor in Base64. Raises NoSchema."""
        return _by_id(self, id, serialized)

    def newest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """Return the newest schema under a subject, `serialized` as in `by_id`. Raises NoSchema."""
        answer = self.request(f"/subjects/{quote(subject, safe='')}/versions/latest{_format(serialized)}")
        return self._schema(answer, serialized=serialized)

    def register(self, subject: str, text: str, kind: str) -> int:
        """Register a schema under a subject unless it is there, and return its id. Raises IncompatibleSchema."""
        return _registered(self, f"/subjects/{quote(subject, safe='')}/versions", text, kind)

    def find(self, subject: str, text: str, kind: str) -> int:
        """Return the id of a schema under a subject. Raises NoSchema if it is not registered there."""
        return _registered(self, f"/subjects/{quote(subject, safe='')}", text, kind)

    def request(self, route: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the registry's answer as JSON; a `body` is posted. It tries all URLs several times.

        Raises NoSchema, IncompatibleSchema, JobError for another refusal, and OutageError if no URL answers.
        """
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE * 2**attempt)
            for url in self.urls:
                answer = self._ask(f"{url}{route}", body)
                if not isinstance(answer, Exception):
                    return answer
        shown = masked(", ".join(self.urls))
        raise OutageError(f"the schema registry at {shown} does not answer", detail=f"{answer}.")

    def _ask(self, url: str, body: Mapping[str, Any] | None) -> Any:
        """Return the answer of one URL, or the exception if a retry may help."""
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
        request.add_header("Content-Type", _TYPE)
        request.add_header("Accept", f"{_TYPE}, application/json")
        if self.authorization is not None:
            request.add_header("Authorization", self.authorization)
        try:
            context = _context(self.authorities, self.certificate) if url.startswith("https:") else None
            with urllib.request.urlopen(request, timeout=_SECONDS, context=context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code >= 500 or error.code == 429:
                return error
            raise self._refused(url, error) from None
        except (OSError, ValueError) as error:
            if isinstance(cause := getattr(error, "reason", None), ssl.SSLCertVerificationError):
                raise _untrusted(url, cause) from None
            # An answer that is no JSON counts, too: a proxy may send one while the registry is down.
            return error

    def _refused(self, url: str, error: urllib.error.HTTPError) -> Exception:
        try:
            body = json.load(error)
        except ValueError:
            body = {}
        code, text = body.get("error_code", error.code), body.get("message", error.reason)
        if error.code == 404 and code in (_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION, 404):
            return NoSchema(str(text))
        if error.code == 409:
            return IncompatibleSchema(str(text))
        message = f"the schema registry at {masked(url)} refuses: {error.code} {text}"
        hint = None
        if error.code in (401, 403):
            hint = "Set the option basic-auth.user-info or bearer-auth.token of the format."
        return JobError(message, hint=hint)

    def _schema(self, answer: Mapping[str, Any], id: int = -1, *, serialized: bool = False) -> RegisteredSchema:
        references = []
        for named in answer.get("references") or ():
            route = f"/subjects/{quote(named['subject'], safe='')}/versions/{named['version']}{_format(serialized)}"
            references.append((named["name"], self._schema(self.request(route), serialized=serialized)))
        kind = answer.get("schemaType") or "AVRO"
        return RegisteredSchema(answer["schema"], kind, answer.get("id", id), tuple(references))


@lru_cache(maxsize=64)
def _context(authorities: str | None, certificate: str | None) -> ssl.SSLContext:
    """Return the TLS context of the PEM files. Raises JobError for a file that does not exist, or is not in PEM."""
    try:
        # Without a file, it trusts the system's certificates.
        file = authorities
        context = ssl.create_default_context(cafile=file)
        if certificate is not None:
            file = certificate
            context.load_cert_chain(file)
        return context
    except OSError as error:
        message = f'file "{file}" for the schema registry cannot be read as PEM'
        raise JobError(message, detail=f"{error}.") from None


def _untrusted(url: str, error: ssl.SSLCertVerificationError) -> JobError:
    host = urlsplit(url).netloc.rpartition("@")[2]
    detail = f"{error.verify_message[:1].upper()}{error.verify_message[1:].rstrip('.')}."
    if error.verify_code in _OTHER_HOST:
        hint = "Use a name that the certificate has."
        return JobError(
            f"the certificate of the schema registry at {host} is for another host", detail=detail, hint=hint
        )
    hint = f"Set the option {_CA} of the format to a file in PEM with the certificate of the authority that gave it."
    return JobError(f"the certificate of the schema registry at {host} cannot be verified", detail=detail, hint=hint)


@lru_cache(maxsize=1024)
def _by_id(registry: SchemaRegistry, id: int, serialized: bool) -> RegisteredSchema:
    return registry._schema(registry.request(f"/schemas/ids/{id}{_format(serialized)}"), id, serialized=serialized)


def _format(serialized: bool) -> str:
    return "?format=serialized" if serialized else ""


@lru_cache(maxsize=1024)
def _registered(registry: SchemaRegistry, route: str, text: str, kind: str) -> int:
    body = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}
    return int(registry.request(route, body)["id"])


def subject_of(table: Table, format: str, record: str, part: str = VALUE_PART) -> str:
    """Return the subject of a table's values or keys; `record` is the full name of their record or message.

    `part` is KEY_PART or VALUE_PART.
    """
    if subject := table.options.get(f"{format}.subject"):
        return subject
    topic = table.options.get("topic", table.name)
    match table.options.get(f"{format}.subject-name-strategy", TOPIC):
        case "record":
            return record
        case "topic-record":
            return f"{topic}-{record}"
    return f"{topic}-{part}"


def registers(table: Table, format: str) -> bool:
    """Whether a job that writes a table registers the schema of its rows."""
    return parse_boolean(table.options.get(f"{format}.auto-register", "true"))


def written_id(table: Table, format: str, subject: str, text: str, kind: str) -> int:
    """Return the id of the schema of the rows that a job writes; register it first, unless the table's options forbid that.

    Raises DataError if it is not registered, or not compatible with the subject's other schemas.
    """
    registry = SchemaRegistry.of(table, format)
    try:
        return (registry.register if registers(table, format) else registry.find)(subject, text, kind)
    except NoSchema as error:
        message = f'table "{table.name}": the schema of its rows is not registered under the subject "{subject}"'
        hint = f"Register it, or leave out '{format}.auto-register'."
        raise DataError(message, detail=f"{error}. The schema is: {text}", hint=hint) from None
    except IncompatibleSchema as error:
        message = (
            f'table "{table.name}": the schema of its rows is not compatible with those of the subject "{subject}"'
        )
        hint = f"Write columns that go with them, set another '{format}.subject', or lower the subject's compatibility level."
        raise DataError(message, detail=f"{str(error).rstrip('.')}. The schema is: {text}", hint=hint) from None


def framed(id: int, body: bytes) -> bytes:
    """Return a message in the wire format, with the id of its schema in front.

    >>> framed(7, b"x")
    b'\\x00\\x00\\x00\\x00\\x07x'
    """
    return b"\0" + id.to_bytes(4, "big") + body


def by_schema(values: Sequence[bytes | None]) -> tuple[dict[int, list[int]], dict[int, str]]:
    """Group messages in the wire format: return the indexes of values by schema id, and the faults of other values by index.

    >>> by_schema([framed(7, b"x"), b"{}", framed(7, b"")])
    ({7: [0, 2]}, {1: 'The value has no schema id of a registry in front'})
    """
    groups: dict[bytes, list[int]] = {}
    faults = {}
    for number, value in enumerate(values):
        if value is None or len(value) < HEAD or value[0] != MAGIC:
            faults[number] = "The value has no schema id of a registry in front"
        else:
            groups.setdefault(value[1:HEAD], []).append(number)
    return {int.from_bytes(id, "big"): numbers for id, numbers in groups.items()}, faults
