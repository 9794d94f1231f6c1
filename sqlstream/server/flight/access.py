"""Authenticates clients of Flight: by a bearer token, or by a password that is a token."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import pyarrow.flight as fl

# The name of the middleware `TokenCheck`.
MIDDLEWARE = "tokens"
# The owner of statements if the server has no tokens.
NOBODY = b""
# The bearer token for clients of a server without tokens.
_ANY = "any"
# The characters that a header can hold.
_CAN_BE_SENT = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class TokenCheck(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Checks the token of each call: `allows` returns whether it is valid. Without `allows`, all clients are allowed."""

    def __init__(self, allows: Callable[[str], bool] | None):
        super().__init__()
        self._allows = allows

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str]]) -> FlightCaller:
        """Return the caller; for a handshake, with the token that the client gets. Raises FlightUnauthenticatedError."""
        header = next((value for name in headers if name.lower() == "authorization" for value in headers[name]), "")
        scheme, _, credentials = header.partition(" ")
        token = _password(credentials) if scheme.lower() == "basic" else credentials
        has_credentials = scheme.lower() in ("basic", "bearer") and token is not None
        if self._allows is not None and not (has_credentials and token is not None and self._allows(token)):
            raise fl.FlightUnauthenticatedError("a token of the server is needed, as the password or as a bearer token")
        owner = sha256(token.encode()).digest() if self._allows is not None and token is not None else NOBODY
        if info.method != fl.FlightMethod.HANDSHAKE or token is None:
            return FlightCaller(owner)
        if self._allows is None:
            return FlightCaller(owner, _ANY)
        if not _CAN_BE_SENT.fullmatch(token):
            # The client would get no token, and not learn why.
            raise fl.FlightUnauthenticatedError("a token that is a password consists of characters of ASCII")
        return FlightCaller(owner, token)


class FlightCaller(fl.ServerMiddleware):  # type: ignore[misc]
    """The caller of a call: `owner`, a digest of its token, identifies its statements.

    A client that logs in with a password, which is a token, gets it back as the bearer token for further calls.
    """

    def __init__(self, owner: bytes, granted: str | None = None):
        super().__init__()
        self.owner = owner
        self._granted = granted

    def sending_headers(self) -> Mapping[str, str]:
        """Return the header with the bearer token, if the client gets one."""
        return {} if self._granted is None else {"authorization": f"Bearer {self._granted}"}


def owner_of(context: Any) -> bytes:
    """Return the owner of a call: a digest of its token, or NOBODY."""
    caller = context.get_middleware(MIDDLEWARE)
    return caller.owner if isinstance(caller, FlightCaller) else NOBODY


class Handshakes(fl.ServerAuthHandler):  # type: ignore[misc]
    """Accepts every handshake, because `TokenCheck` has already checked its headers."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Does nothing: `TokenCheck` has checked the token in the headers."""

    def is_valid(self, token: bytes) -> bytes:
        """Return the identity of the peer, which is not used."""
        return b""


def _password(credentials: str) -> str | None:
    """Return the password in the credentials of basic authentication; None if they are invalid.

    >>> _password("dXNlcjpzZTpjcmV0"), _password("dTpw"), _password("dTpwdw"), _password("?")
    ('se:cret', 'p', 'pw', None)
    """
    try:
        # Clients in Go omit the padding.
        return base64.b64decode(credentials + "=" * (-len(credentials) % 4), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None
