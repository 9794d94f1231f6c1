"""Encrypted connections: translates Java's settings for certificates and keys, and explains errors about certificates.

Java stores certificates in JKS files by default; librdkafka reads PEM files, and a PKCS #12 file with the client's key and
certificate. librdkafka's error about a broker's certificate says only that it cannot be verified. So after such an error,
Python's `ssl` is asked, which distinguishes an unknown authority from a host that the certificate does not name.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping

from sqlstream.catalog import Table
from sqlstream.errors import BindError, Span, UsageError

PREFIX = "properties."
PROTOCOL = "security.protocol"
CA, CA_PEM, CERTIFICATE, KEY = "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location"
CHECKS_HOST = "ssl.endpoint.identification.algorithm"
_TRUSTED, _KEYS = "ssl.truststore", "ssl.keystore"
_RENAMED = {
    f"{_TRUSTED}.certificates": CA_PEM,
    f"{_KEYS}.certificate.chain": "ssl.certificate.pem",
    f"{_KEYS}.key": "ssl.key.pem",
}
_CHOSEN = "The client and the broker agree on it: leave it out."
_REFUSED = {
    f"{_TRUSTED}.password": "Certificates in PEM need none: leave it out.",
    "ssl.protocol": _CHOSEN,
    "ssl.enabled.protocols": _CHOSEN,
    "ssl.provider": "Java classes cannot run here: leave it out.",
    "ssl.engine.factory.class": "Java classes cannot run here: leave it out.",
    "ssl.keymanager.algorithm": "Java classes cannot run here: leave it out.",
    "ssl.trustmanager.algorithm": "Java classes cannot run here: leave it out.",
    "ssl.secure.random.implementation": "Java classes cannot run here: leave it out.",
}
_CONVERT = {
    _TRUSTED: "Write its certificates as PEM (keytool -list -rfc -keystore STORE > ca.pem), and set 'properties.ssl.ca.location' "
    "to that file.",
    _KEYS: "Make it PKCS12 (keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12), and set "
    f"'properties.{_KEYS}.type' = 'PKCS12'.",
}
_PEM_NAMES = (".pem", ".crt", ".cer")
# Settings that have no meaning without encryption.
_NEEDS_SSL = (CA, CA_PEM, CERTIFICATE, KEY, "ssl.certificate.pem", "ssl.key.pem", f"{_KEYS}.location")
_FILES = (CA, CERTIFICATE, KEY, f"{_KEYS}.location", "ssl.crl.location")
_UNVERIFIED = re.compile(r"ssl://(?P<host>\[[^\]]+\]|[^/\s]+):(?P<port>\d+)/.*certificate verify failed")
_CLIENT_REFUSED = re.compile(
    r"alert (bad certificate|certificate required|unknown ca|certificate unknown|handshake failure)"
)
_OTHER_HOST, _OTHER_ADDRESS = 62, 64  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_SECONDS = 5.0


class JavaOnly(ValueError):
    """librdkafka lacks a setting of Java clients or, with `by_value`, its value. The message is the hint for users."""

    def __init__(self, hint: str, *, by_value: bool = False):
        super().__init__(hint)
        self.by_value = by_value


def translated(name: str, value: str, properties: Mapping[str, str]) -> Mapping[str, str] | None:
    """Translate a setting of Java clients about encryption for librdkafka; None if it is about something else. Raises JavaOnly.

    `properties` are all `properties.*` of the table, without this prefix.

    >>> translated("ssl.keystore.location", "/ann.pem", {})
    {'ssl.certificate.location': '/ann.pem', 'ssl.key.location': '/ann.pem'}
    """
    store, _, field = name.rpartition(".")
    if store in (_TRUSTED, _KEYS) and field == "type":
        if value.upper() != "PEM" and (store, value.upper()) != (_KEYS, "PKCS12"):
            raise JavaOnly(_CONVERT[store], by_value=True)
        return {}
    if store in (_TRUSTED, _KEYS) and field == "location":
        kind = properties.get(f"{store}.type", "").upper()
        is_pem = kind == "PEM" or (not kind and value.endswith(_PEM_NAMES))
        if is_pem:
            return dict.fromkeys((CA,) if store == _TRUSTED else (CERTIFICATE, KEY), value)
        if store == _TRUSTED or value.endswith(".jks"):
            raise JavaOnly(_CONVERT[store])
        return {name: value}
    if name == CHECKS_HOST:
        return {name: value or "none"}
    if name in _REFUSED:
        raise JavaOnly(_REFUSED[name])
    return {_RENAMED[name]: value} if name in _RENAMED else None


def check(table: Table, settings: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise BindError for settings of encryption without encryption.

    `settings` are librdkafka's; `options` maps each of them to the table's option that it comes from.
    """
    for name in (name for name in _NEEDS_SSL if name in settings):
        if not settings.get(PROTOCOL, "").upper().endswith("SSL"):
            option = options[name]
            message = f'table "{table.name}": option "{option}" has no meaning without encryption'
            hint = f"Set '{PREFIX}{PROTOCOL}' = 'SSL', or 'SASL_SSL' if users log in."
            raise BindError(message, table.option_span(option), hint=hint)


def missing_files(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the settings of librdkafka that name files which do not exist on this machine."""
    for name in _FILES:
        if settings.get(name, "probe") != "probe" and not os.path.exists(settings[name]):
            yield name


def check_files(table: Table, settings: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise UsageError for a file of certificates or keys that does not exist; the arguments are those of `check`."""
    for name in missing_files(settings):
        message = f'table "{table.name}": file "{settings[name]}" does not exist'
        hint = "It is read on the machine that runs the job, when that connects to the brokers."
        raise UsageError(message, table.option_span(options[name], value=True), hint=hint)


def is_distrust(text: str) -> bool:
    """Whether the text of an error of librdkafka says that one side does not trust the other's certificate."""
    return bool(_UNVERIFIED.search(text) or _CLIENT_REFUSED.search(text))


def distrust(table: Table, text: str, settings: Mapping[str, str]) -> UsageError | None:
    """Return the error about a certificate that one side does not trust; None if librdkafka's error is about something else.

    `text` is librdkafka's error, `settings` are its settings. It may connect to the broker for some seconds to find the reason.
    """
    if _CLIENT_REFUSED.search(text):
        message = f'table "{table.name}": the broker refuses the certificate of the client, or wants one'
        hint = f"Set '{PREFIX}{CERTIFICATE}' and '{PREFIX}{KEY}' to files in PEM, with a certificate that it trusts."
        return UsageError(message, _span(table, CERTIFICATE), detail=_sentence(text), hint=hint)
    at = _UNVERIFIED.search(text)
    if at is None:
        return None
    host, port = at["host"].strip("[]"), int(at["port"])
    error = _doubt(host, port, settings)
    if error is not None and error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        message = f'table "{table.name}": the certificate of the broker at {host}:{port} is for another host'
        hint = (
            f"Connect by a name that the certificate has, or set '{PREFIX}{CHECKS_HOST}' = 'none' to trust whoever has "
            "a certificate of this authority."
        )
        return UsageError(message, _span(table, "bootstrap.servers"), detail=_sentence(error.verify_message), hint=hint)
    message = f'table "{table.name}": the certificate of the broker at {host}:{port} cannot be verified'
    detail = _sentence(text if error is None else error.verify_message)
    hint = f"Set '{PREFIX}{CA}' to a file in PEM with the certificate of the authority that gave it."
    return UsageError(message, _span(table, CA), detail=detail, hint=hint)


def _doubt(host: str, port: int, settings: Mapping[str, str]) -> ssl.SSLCertVerificationError | None:
    """Connect to a broker with Python's `ssl`, and return its error about the certificate; None if it accepts the certificate."""
    with contextlib.suppress(OSError, ValueError):
        path = settings.get(CA)
        is_folder = path is not None and os.path.isdir(path)
        context = ssl.create_default_context(
            cafile=None if is_folder or path == "probe" else path,
            capath=path if is_folder else None,
            cadata=settings.get(CA_PEM),
        )
        context.check_hostname = settings.get(CHECKS_HOST, "https") == "https"
        try:
            with socket.create_connection((host, port), _SECONDS) as plain:
                context.wrap_socket(plain, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            return error
    return None


def _span(table: Table, name: str) -> Span | None:
    return table.option_span(f"{PREFIX}{name}", value=True)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
