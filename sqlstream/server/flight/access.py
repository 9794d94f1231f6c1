"""Lets clients in: by a bearer token, or by a password that is one."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import pyarrow.flight as fl

# By what Flight knows `TokenCheck`.
MIDDLEWARE = "tokens"
# Whose what is kept is where there are no tokens.
NOBODY = b""
# What clients bring back where everybody may come.
_ANY = "any"
# What a header may hold.
_CAN_BE_SENT = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class TokenCheck(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Checks each call; `allows` says whether a token lets a client in, without it everybody may come."""

    def __init__(self, allows: Callable[[str], bool] | None):
        super().__init__()
        self._allows = allows

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str]]) -> FlightCaller:
        """Return who calls, and what answers a client that has said a password. Raises FlightUnauthenticatedError."""
        given = next((value for name in headers if name.lower() == "authorization" for value in headers[name]), "")
        scheme, _, credentials = given.partition(" ")
        token = _password(credentials) if scheme.lower() == "basic" else credentials
        known = scheme.lower() in ("basic", "bearer") and token is not None
        if self._allows is not None and not (known and token is not None and self._allows(token)):
            raise fl.FlightUnauthenticatedError("a token of the server is needed, as the password or as a bearer token")
        owner = sha256(token.encode()).digest() if self._allows is not None and token is not None else NOBODY
        if info.method != fl.FlightMethod.HANDSHAKE or token is None:
            return FlightCaller(owner)
        if self._allows is None:
            return FlightCaller(owner, _ANY)
        if not _CAN_BE_SENT.fullmatch(token):
            # A client would hear of no token, and not why.
            raise fl.FlightUnauthenticatedError("a token that is a password consists of characters of ASCII")
        return FlightCaller(owner, token)


class FlightCaller(fl.ServerMiddleware):  # type: ignore[misc]
    """Who calls: `owner` stands for the token, what is kept for it is its own.

    A client that says a password is told to come with it as a bearer token from now on: it is one.
    """

    def __init__(self, owner: bytes, granted: str | None = None):
        super().__init__()
        self.owner = owner
        self._granted = granted

    def sending_headers(self) -> Mapping[str, str]:
        return {} if self._granted is None else {"authorization": f"Bearer {self._granted}"}


def owner_of(context: Any) -> bytes:
    """Return for whom a call is made."""
    caller = context.get_middleware(MIDDLEWARE)
    return caller.owner if isinstance(caller, FlightCaller) else NOBODY


class Handshakes(fl.ServerAuthHandler):  # type: ignore[misc]
    """Answers handshakes, whose headers have been checked by `TokenCheck`."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Nothing more is said."""

    def is_valid(self, token: bytes) -> bytes:
        return b""


def _password(credentials: str) -> str | None:
    """Return the password of a header for basic authentication.

    >>> _password("dXNlcjpzZTpjcmV0"), _password("dTpw"), _password("dTpwdw"), _password("?")
    ('se:cret', 'p', 'pw', None)
    """
    try:
        # Clients in Go leave out what fills it up to groups of four.
        return base64.b64decode(credentials + "=" * (-len(credentials) % 4), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None
