"""Access to the server: bearer tokens with roles, from a file."""

from __future__ import annotations

import hmac
import os
import re
import stat
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256

from sqlstream.errors import UsageError

_HINT = "Each line has a role (read, submit or admin) and a token, or the SHA-256 of one as sha256:HEX."
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
# Shorter tokens can be guessed.
_SHORTEST = 16


class Role(IntEnum):
    """What a token allows; each role includes the roles before it."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a server: for each (SHA-256 of the token, its role)."""

    digests: tuple[tuple[bytes, Role], ...]

    def role_of(self, token: str) -> Role | None:
        """Return the role of a token, None for an unknown one. How long that takes reveals nothing about the server's tokens."""
        token_digest = sha256(token.encode()).digest()
        token_role: Role | None = None
        for digest, role in self.digests:
            if hmac.compare_digest(digest, token_digest):
                token_role = role
        return token_role


def read_tokens(path: str) -> Tokens:
    """Return the tokens of a file. Raises UsageError for an invalid file, or one that others may read."""
    try:
        status = os.stat(path)
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f'the file of tokens "{path}" cannot be read', detail=str(error)) from error
    if is_open(status.st_mode, status.st_uid, os.geteuid()):
        raise UsageError(f'the file of tokens "{path}" is open to others', hint=f'Close it: chmod 600 "{path}".')
    tokens = [
        _token(path, number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not tokens:
        raise UsageError(f'the file "{path}" has no tokens', hint=_HINT)
    return Tokens(tuple(tokens))


def is_open(mode: int, owner: int, user: int) -> bool:
    """Return whether a file with tokens is open to others than the user who runs the server.

    A group may read root's file: Kubernetes gives a Secret to its pod in this way.
    """
    closed = stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH
    if owner != 0 or user == 0:
        closed |= stat.S_IRGRP
    return bool(mode & closed)


def _token(path: str, number: int, line: str) -> tuple[bytes, Role]:
    role, _, token = line.strip().partition(" ")
    token = token.strip()
    if role.upper() not in Role.__members__ or not token or " " in token:
        raise UsageError(f'line {number} of "{path}" is no token', hint=_HINT)
    if match := _DIGEST.fullmatch(token):
        return bytes.fromhex(match[1]), Role[role.upper()]
    if len(token) < _SHORTEST:
        raise UsageError(f'the token in line {number} of "{path}" is shorter than {_SHORTEST} characters')
    return sha256(token.encode()).digest(), Role[role.upper()]
