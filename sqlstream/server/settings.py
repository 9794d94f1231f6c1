"""The settings of a server, and checks that refuse unsafe or invalid ones."""

from __future__ import annotations

import ipaddress
import math
import re
import ssl
from dataclasses import dataclass, field

from sqlstream.errors import UsageError
from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits
from sqlstream.server.access import Tokens

DEFAULT_PORT = 8642
_MB = 1 << 20
_LAST_PORT = 65_535
_BRACKETS = re.compile(r"\[[^\[\]]+\]")


def limits_of_query(memory: int) -> QueryLimits:
    """Return the limits of one query: `memory` bytes of memory, and four times as many on disk."""
    return QueryLimits(memory=memory, spilled=4 * memory, threads=2)


_OF_A_QUERY = limits_of_query(1024 * _MB)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests: bytes of a body, seconds of a query, concurrent queries, and the memory and threads of each.

    Compiling a script takes at most `compile_seconds`, verifying a job `verify_seconds`. As many scripts as queries are compiled
    at the same time, and `verifications` jobs verified. The rows and indexes that lookups keep in memory take at most `lookups`
    bytes. `connections` is the number over HTTP; `subscribers` may listen to events; `parallelism` is the limit for jobs of the
    role `submit`.
    """

    body: int = _MB
    query_seconds: float = 60.0
    compile_seconds: float = 60.0
    verify_seconds: float = 600.0
    queries: int = 4
    verifications: int = 1
    subscribers: int = 32
    connections: int = 1_000
    parallelism: int = 64
    lookups: int = 2048 * _MB
    query: QueryLimits = _OF_A_QUERY


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a port; a host of None is the server's host."""

    port: int
    host: str | None = None


def parse_address(text: str | int) -> Address:
    """Return the address in a text `[HOST:]PORT`. Raises UsageError.

    >>> parse_address("31337"), parse_address("[::1]:31337")
    (Address(port=31337, host=None), Address(port=31337, host='::1'))
    """
    host, _, port = str(text).rpartition(":")
    if not (port.isdecimal() and port.isascii() and int(port) <= _LAST_PORT) or (
        ":" in host and not _BRACKETS.fullmatch(host)
    ):
        raise UsageError(
            f'"{text}" is no port, and no host and port', hint="Such as 31337, 127.0.0.1:31337 or [::1]:31337."
        )
    return Address(int(port), host.removeprefix("[").removesuffix("]") or None)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where a server listens, which clients it accepts, and its limits.

    `insecure` lets it listen for other machines without tokens or TLS. `names` are further host names by which clients may
    address it. SQL of the role `submit` reads and writes files below `paths` only. `postgres` is the port for PostgreSQL's
    clients, `flight` the address for clients of Arrow Flight SQL.
    """

    project: Project
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tokens: Tokens | None = None
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    postgres: int | None = None
    flight: Address | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine can connect."""
        return is_loopback(self.host)

    @property
    def flight_host(self) -> str:
        """The host on which the server listens for clients of Flight SQL."""
        return self.flight.host if self.flight and self.flight.host else self.host

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    def url(self, port: int) -> str:
        """Return the server's URL with a port, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.has_tls else 'http'}://{host}:{port}"

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names that a request's header Host may have, in lower case; None for any.

        A page of another site can let its own name point to this host (DNS rebinding). It has no token; if the server has none
        either, the name reveals it.
        """
        if not self.is_loopback and not self.names:
            return None
        names = {name.lower() for name in (self.host, *self.names)}
        return frozenset(names | ({"localhost", "127.0.0.1", "::1"} if self.is_loopback else set()))

    def check(self) -> None:
        """Raise UsageError if other machines could connect without tokens or TLS, and for invalid values of settings."""
        for option, port in (("--port", self.port), ("--postgres", self.postgres)):
            if port is not None and not 0 <= port <= _LAST_PORT:
                raise UsageError(
                    f"{option} {port} is no port", hint=f"A port is a number up to {_LAST_PORT}; 0 is any that is free."
                )
        if self.limits.queries < 1:
            raise UsageError(f"--queries {self.limits.queries} lets no query run", hint="Name a number from 1 on.")
        limits = self.limits
        for option, seconds, what in (
            ("--query-seconds", limits.query_seconds, "a query"),
            ("--compile-seconds", limits.compile_seconds, "compiling"),
            ("--verify-seconds", limits.verify_seconds, "verifying"),
        ):
            if not 0 < seconds < math.inf:
                raise UsageError(f"{option} {seconds:g} is no time that {what} can take")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("TLS takes a certificate and its key", hint="Name both: --tls-cert FILE --tls-key FILE.")
        if self.certificate is not None and self.key is not None:
            check_certificate(self.certificate, self.key)
        open_host = next((host for host in (self.host, self.flight_host) if not is_loopback(host)), None)
        if open_host is None or self.insecure:
            return
        lacking = [what for what, there in (("tokens", self.tokens), ("TLS", self.certificate)) if there is None]
        if lacking:
            raise UsageError(
                f'the server would listen on "{open_host}" without {" and without ".join(lacking)}',
                hint="Give it --tokens FILE, --tls-cert FILE and --tls-key FILE; or say --insecure where something in "
                "front of it checks who asks.",
            )


def check_certificate(certificate: str, key: str) -> None:
    """Raise UsageError unless the file `certificate` has a certificate, and the file `key` its key, both in PEM."""
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise UsageError(f'{option} "{path}" cannot be read', detail=error.strerror) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(certificate)
    except ssl.SSLError as error:
        raise UsageError(f'--tls-cert "{certificate}" has no certificate in PEM', detail=_reason(error)) from error
    try:
        # OpenSSL would ask for the password of a key at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f'--tls-key "{key}" is not the key of --tls-cert "{certificate}"') from error
        message = f'--tls-key "{key}" has no key in PEM that can be read without a password'
        raise UsageError(message, detail=_reason(error)) from error


def _reason(error: ssl.SSLError) -> str | None:
    return f"{error.reason.replace('_', ' ').capitalize()}." if error.reason else None


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
