"""Lets clients in: by a bearer token, or by a password that is one."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow.flight as fl

# What clients bring back where everybody may come.
_ANY = "any"
# What a header may hold.
_CAN_BE_SENT = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class TokenCheck(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Checks each call; `allows` says whether a token lets a client in, without it everybody may come."""

    def __init__(self, allows: Callable[[str], bool] | None):
        super().__init__()
        self._allows = allows

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str]]) -> _Granted | None:
        """Return what answers a client that has said a password. Raises FlightUnauthenticatedError."""
        given = next((value for name in headers if name.lower() == "authorization" for value in headers[name]), "")
        scheme, _, credentials = given.partition(" ")
        token = _password(credentials) if scheme.lower() == "basic" else credentials
        known = scheme.lower() in ("basic", "bearer") and token is not None
        if self._allows is not None and not (known and token is not None and self._allows(token)):
            raise fl.FlightUnauthenticatedError("a token of the server is needed, as the password or as a bearer token")
        if info.method != fl.FlightMethod.HANDSHAKE or token is None:
            return None
        if self._allows is None:
            return _Granted(_ANY)
        if not _CAN_BE_SENT.fullmatch(token):
            # A client would hear of no token, and not why.
            raise fl.FlightUnauthenticatedError("a token that is a password consists of characters of ASCII")
        return _Granted(token)


class _Granted(fl.ServerMiddleware):  # type: ignore[misc]
    """Tells a client to come with its password as a bearer token from now on: it is one."""

    def __init__(self, token: str):
        super().__init__()
        self._token = token

    def sending_headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"}


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
