"""A client's session: its parameters, its transaction, and the statements about these, which read no tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlstream.queries.statement import tokenize
from sqlstream.server.postgres.errors import ProtocolError

VERSION = "15.0"

# Parameters that are reported to clients at the start and when they change, by their names in lower case.
_REPORTED = {
    "server_version": "server_version",
    "server_encoding": "server_encoding",
    "client_encoding": "client_encoding",
    "application_name": "application_name",
    "default_transaction_read_only": "default_transaction_read_only",
    "in_hot_standby": "in_hot_standby",
    "is_superuser": "is_superuser",
    "session_authorization": "session_authorization",
    "datestyle": "DateStyle",
    "intervalstyle": "IntervalStyle",
    "timezone": "TimeZone",
    "integer_datetimes": "integer_datetimes",
    "standard_conforming_strings": "standard_conforming_strings",
}
_DEFAULTS: Mapping[str, str] = {
    "server_version": VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "read committed",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "in_hot_standby": "off",
    "is_superuser": "off",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "search_path": "main",
    "statement_timeout": "0",
    "extra_float_digits": "1",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "bytea_output": "hex",
    "default_table_access_method": "heap",
    "lc_collate": "C",
    "lc_ctype": "C",
    "row_security": "on",
}
# The format of results is fixed: clients can set these parameters to these values only.
_FIXED: Mapping[str, str] = {
    "client_encoding": r"utf-?8|unicode",
    "datestyle": r"iso(\s*,.*)?",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on|true|1|yes",
    "default_transaction_read_only": "on|true|1|yes",
    "transaction_read_only": "on|true|1|yes",
    "bytea_output": "hex",
}
# Parameters that clients can set without an effect: timestamps with a zone are in UTC.
_IGNORED = {"timezone", "search_path"}
_MILLISECONDS = {"": 1, "us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_DONE: Mapping[str, str] = {
    "DISCARD": "DISCARD ALL",
    "LISTEN": "LISTEN",
    "UNLISTEN": "UNLISTEN",
    "SAVEPOINT": "SAVEPOINT",
    "RELEASE": "RELEASE",
    "DEALLOCATE": "DEALLOCATE",
}
_COMMANDS = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SET", "RESET"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a statement of the session: its tag, rows if it has any, and the reported parameters that it `changed`."""

    tag: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatementText:
    """A statement of a client's text: its SQL, its offset in the text, and its words in upper case."""

    sql: str
    offset: int
    words: tuple[str, ...]


def split(text: str) -> list[StatementText]:
    """Split a text at its semicolons, without empty statements.

    >>> [s.sql for s in split("BEGIN; SELECT ';' ;; ")]
    ['BEGIN', "SELECT ';'"]
    """
    statements, tokens = [], tokenize(text)
    start = 0
    for i, token in enumerate(tokens):
        if token.text == ";" or i == len(tokens) - 1:
            part = tokens[start : i + (token.text != ";")]
            start = i + 1
            if part:
                sql = text[part[0].start : part[-1].end]
                statements.append(StatementText(sql, part[0].start, tuple(t.word for t in part)))
    return statements


class ClientSession:
    """The parameters of a connection, and its transaction's status: `I` is outside of one, `T` inside, `E` in a failed one."""

    def __init__(self, user: str, database: str, parameters: Mapping[str, str]):
        self.user, self.database = user, database
        self.status = "I"
        self._values = {**_DEFAULTS, "session_authorization": user}
        for name, value in parameters.items():
            self._set(name, value)
        self._at_start = dict(self._values)

    def reported(self) -> Mapping[str, str]:
        """Return the values of the parameters that are reported to a client at the start."""
        return {shown: self._values[name] for name, shown in _REPORTED.items()}

    def values(self) -> Mapping[str, str]:
        """Return the values of all parameters, by their names in PostgreSQL's spelling."""
        return {_REPORTED.get(name, name): value for name, value in self._values.items()}

    @property
    def timeout(self) -> float | None:
        """The client's limit for a statement, in seconds; None if it has set none."""
        milliseconds = _milliseconds(self._values["statement_timeout"])
        return milliseconds / 1000 if milliseconds else None

    def failed(self) -> None:
        """Mark the open transaction, if there is one, as failed: it accepts no further statements."""
        self.status = "E" if self.status != "I" else "I"

    def is_command(self, written: StatementText) -> bool:
        """Return whether a statement is one of the session, not a query."""
        word = written.words[0]
        return word in _COMMANDS or word in _DONE or (word == "SHOW" and self.shown(written) is not None)

    def answer(self, written: StatementText) -> Reply | None:
        """Run a statement of the session; return None for a query. Raises ProtocolError."""
        words = written.words
        if self.status == "E" and words[0] not in ("COMMIT", "END", "ROLLBACK", "ABORT"):
            message = "current transaction is aborted, commands ignored until end of transaction block"
            raise ProtocolError(message, "25P02")
        match words[0]:
            case "BEGIN" | "START":
                self.status = "T"
                return Reply("BEGIN" if words[0] == "BEGIN" else "START TRANSACTION")
            case "ROLLBACK" if "TO" in words:
                self.status = "T"
                return Reply("ROLLBACK")
            case "COMMIT" | "END" | "ROLLBACK" | "ABORT":
                tag = "COMMIT" if words[0] in ("COMMIT", "END") and self.status != "E" else "ROLLBACK"
                self.status = "I"
                return Reply(tag)
            case "SET" | "RESET":
                return self._changed(written)
            case "SHOW":
                return self.shown(written)
        if words[0] in _DONE:
            return Reply(_DONE[words[0]])
        return None

    def shown(self, written: StatementText) -> Reply | None:
        """Return the reply to SHOW of a parameter; None for any other SHOW, such as SHOW TABLES."""
        words = [word.strip('"').lower() for word in written.words[1:]]
        name = {"time zone": "timezone", "transaction isolation level": "transaction_isolation"}.get(" ".join(words))
        name = name or (words[0] if len(words) == 1 else ".".join(words[::2]))
        if words == ["all"]:
            rows = tuple((name, value, "") for name, value in sorted(self.values().items()))
            return Reply("SHOW", ("name", "setting", "description"), rows)
        if (value := self._values.get(name)) is None:
            return None
        return Reply("SHOW", (_REPORTED.get(name, name),), ((value,),))

    def setting(self, name: str) -> str | None:
        """Return the value of a parameter; None if there is none of this name."""
        return self._values.get(name.lower())

    def _changed(self, written: StatementText) -> Reply:
        tokens = tokenize(written.sql)
        words = [t.word for t in tokens]
        if words[0] == "RESET":
            names = list(self._values) if words[1:] == ["ALL"] else [".".join(t.name for t in tokens[1::2]).lower()]
            before = dict(self._values)
            self._values.update({n: self._at_start[n] for n in names if n in self._at_start})
            return Reply("RESET", changed=self._reported_changes(before))
        at = 1 + (words[1:2] in (["SESSION"], ["LOCAL"]) and words[2:3] not in (["CHARACTERISTICS"], ["AUTHORIZATION"]))
        if words[at : at + 1] in (["TRANSACTION"], ["SESSION"], ["CONSTRAINTS"], ["ROLE"]):
            if "WRITE" in words:
                raise ProtocolError("cannot set transaction read-write mode: clients only read", "25006")
            return Reply("SET")
        if words[at : at + 2] == ["TIME", "ZONE"]:
            return Reply("SET")
        name, end = tokens[at].name if len(tokens) > at else "", at + 1
        while words[end : end + 1] == ["."] and end + 1 < len(tokens):
            name, end = f"{name}.{tokens[end + 1].name}", end + 2
        if not name or words[end : end + 1] not in (["="], ["TO"]) or end + 1 >= len(tokens):
            raise ProtocolError("SET takes the name of a parameter and a value", "42601")
        value = written.sql[tokens[end].end :].strip()
        before = dict(self._values)
        self._set(name, value[1:-1].replace("''", "'") if value[:1] == "'" == value[-1:] else value)
        return Reply("SET", changed=self._reported_changes(before))

    def _reported_changes(self, before: Mapping[str, str]) -> Mapping[str, str]:
        return {_REPORTED[n]: v for n, v in self._values.items() if n in _REPORTED and before.get(n) != v}

    def _set(self, name: str, value: str) -> None:
        name = name.lower()
        if value.upper() == "DEFAULT":
            value = _DEFAULTS.get(name, "")
        if name in _FIXED and not re.fullmatch(_FIXED[name], value.strip().lower()):
            raise ProtocolError(f'parameter "{name}" cannot be "{value}" here', "22023")
        if name == "statement_timeout" and _milliseconds(value) is None:
            raise ProtocolError(f'invalid value for parameter "{name}": "{value}"', "22023")
        if name in ("server_version", "server_encoding", "integer_datetimes", "session_authorization"):
            raise ProtocolError(f'parameter "{name}" cannot be changed', "55P02")
        if name not in _FIXED and name not in _IGNORED:
            self._values[name] = value


def _milliseconds(value: str) -> float | None:
    """Return the milliseconds of a duration, as PostgreSQL's clients write it; None if the text is no duration.

    >>> _milliseconds("1.5 s"), _milliseconds("250"), _milliseconds("soon")
    (1500.0, 250.0, None)
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d*)?)\s*([a-z]*)", value.strip().lower())
    return float(match[1]) * _MILLISECONDS[match[2]] if match and match[2] in _MILLISECONDS else None
