"""Secrets: passwords, tokens and keys in options, and passwords inside of URLs. They are used, and never shown.

A secret is recognized by the name of its option, or by its position in a URL or a connection string. It is no part of a plan, so
a job continues when it changes. Where an option is shown, MASK replaces it. Texts of other software, such as the messages of
exceptions, are searched for the secrets that this process has seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

MASK = "******"
# The words of Flink's GlobalConfiguration.isSensitive and ours, without separators.
_WORDS = (
    *("password", "passwd", "passphrase", "secret", "token", "apikey", "servicekey", "accountkey", "authparams"),
    *(
        "basicauth",
        "jaasconfig",
        "httpheaders",
        "credential",
        "accesskey",
        "privatekey",
        "keystorekey",
        "keypem",
        "sharedkey",
        "connectionstring",
    ),
)
_WHOLE_WORDS = ("dsn", "pwd", "authorization")
# Options of columns contain the names of the user's columns.
_OF_COLUMNS = "fields."
# user:password@ in a URL; and NAME=VALUE in a connection string or in the query of a URL, where NAME names a secret.
_IN_URL = re.compile(r"(?<=://)(?P<user>[^\s:/?#@]*)(?P<all>:(?P<secret>[^\s/?#]*))(?=@)")
_GIVEN = re.compile(
    r"(?P<all>(?P<name>\b[\w.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|account[_-]?key)[\w.-]*)"
    r"\s*=\s*(?P<secret>'(?:[^'\\]|\\.)*'|[^\s&;]+))",
    re.IGNORECASE,
)
# Comments, options (also in wrong quotes) and other literals of SQL. An unclosed quote extends to the end.
_IN_SQL = re.compile(
    r"""
      --[^\n]*
    | /\*(?!\+).*?\*/
    | (?P<name>'(?:[^']|'')*') \s* =? \s* [eE]?'(?P<value>(?:[^']|'')*)(?:'|\Z)
    | [(,] \s* (?P<bare>"(?:[^"]|"")*"|`(?:[^`]|``)*`|[\w.-]+) \s* (?:=>?|:=) \s* [eE]?'(?P<given>(?:[^']|'')*)(?:'|\Z)
    | '(?P<text>(?:[^']|'')*)(?:'|\Z)
    """,
    re.DOTALL | re.VERBOSE,
)
# Shorter secrets are not searched for; secrets shorter than the second number only as whole words: they may be parts of words.
_SHORTEST, _SHORT = 4, 8
# Short words; other secrets are searched for as parts of words, too.
_WORD = re.compile(r"[a-z]{1,9}")
_secret_values: set[str] = set()
# The contents of secret files: secret in every option, whatever its name.
_of_files: set[str] = set()


def is_secret(option: str) -> bool:
    """Return whether the values of an option are secret, by its name.

    >>> is_secret("sasl.Pass-Word"), is_secret("api_key"), is_secret("dsn"), is_secret("key"), is_secret("fields.token.length")
    (True, True, True, False, False)
    """
    if option.lower().startswith(_OF_COLUMNS):
        return False
    words = re.split(r"[^a-z0-9]+", option.lower())
    return any(word in "".join(words) for word in _WORDS) or any(word in words for word in _WHOLE_WORDS)


def shown(option: str, value: str) -> str:
    """Return the value of an option with its secrets masked.

    >>> shown("password", "hunter2"), shown("url", "postgresql://ann:hunter2@host/db?sslpassword=x")
    ('******', 'postgresql://ann:******@host/db?sslpassword=******')
    """
    return MASK if is_secret(option) else _replaced(_without_files(value, MASK), MASK)


def planned(options: Mapping[str, str]) -> dict[str, str]:
    """Return options without their secrets, as a plan holds them.

    >>> planned({"class": "a.B", "token": "x", "url": "postgresql://ann:hunter2@host/db"})
    {'class': 'a.B', 'url': 'postgresql://ann@host/db'}
    """
    return {
        name: _GIVEN.sub("", _IN_URL.sub(lambda match: match["user"], _without_files(value, "")))
        for name, value in options.items()
        if not is_secret(name)
    }


def remember(options: Mapping[str, str]) -> None:
    """Register the secrets of some options: `masked` and `secret_spans` find them from now on, in this process."""
    for name, value in options.items():
        for secret in (value,) if is_secret(name) else _secrets_in(value):
            # As it is, and as it is written in an URL, in Python, in JSON and in SQL.
            spelt = {secret, unquote(secret), repr(secret)[1:-1], json.dumps(secret)[1:-1], secret.replace("'", "''")}
            _secret_values.update(one for one in spelt if len(one.strip()) >= _SHORTEST)


def remember_file(text: str) -> None:
    """Register the content of a secret file: it is secret in every option, whatever its name."""
    if len(text.strip()) >= _SHORTEST:
        _of_files.add(text)
    remember({"password": text})


def masked(text: str) -> str:
    """Return a text in which MASK replaces the secrets that this process knows and the passwords of URLs."""
    for secret in sorted(_secret_values, key=len, reverse=True):
        if secret in text:
            text = _known_as(secret).sub(MASK, text)
    return _IN_URL.sub(lambda match: f"{match['user']}:{MASK}", text)


def harmless(error: BaseException) -> BaseException | None:
    """Return the error, for `raise .. from error`; None if its text, or the text of one of its causes, has a secret."""
    seen: BaseException | None = error
    ids: set[int] = set()
    # Errors can be causes of each other.
    while seen is not None and id(seen) not in ids:
        ids.add(id(seen))
        if masked(str(seen)) != str(seen):
            return None
        seen = seen.__cause__ or seen.__context__
    return error


def secret_spans(sql: str) -> list[tuple[int, int]]:
    """Return (start, end) of each secret in a script, in order: literals of options, passwords in URLs, known values.

    >>> secret_spans("WITH ('password' = 'hunter2', 'url' = 'x://a:b@c') -- 'token' = 'x'")
    [(20, 27), (45, 46)]
    """
    spans = set[tuple[int, int]]()
    for option, start, end in _texts(sql):
        if option is not None and is_secret(option):
            spans.add((start, end))
        else:
            spans |= {(start + a, start + b) for a, b in _spans_in(sql[start:end])}
    for secret in _secret_values:
        spans |= {m.span() for m in _known_as(secret).finditer(sql)}
    return list(_apart(sorted(spans)))


def hidden(sql: str) -> str:
    """Return a script whose secrets are stars, one per character: the positions of all other characters stay the same."""
    for start, end in secret_spans(sql):
        sql = sql[:start] + "*" * (end - start) + sql[end:]
    return sql


def remember_script(sql: str) -> None:
    """Register the secrets in the options of a script, which may be invalid SQL; see `remember`."""
    for option, start, end in _texts(sql):
        if option is not None:
            remember({option: sql[start:end].replace("''", "'")})


def _texts(sql: str) -> Iterator[tuple[str | None, int, int]]:
    """Yield (option, start, end) of each literal in a script; the option is None for a literal that is no option's value."""
    for piece in _IN_SQL.finditer(sql):
        for name, value in (("name", "value"), ("bare", "given")):
            if piece[value] is not None:
                yield piece[name].strip("'\"`"), *piece.span(value)
        if piece["text"] is not None:
            yield None, *piece.span("text")


def _known_as(secret: str) -> re.Pattern[str]:
    """Return the pattern that finds a secret in texts of other software. A short secret is found as a whole word only.

    >>> [bool(_known_as("postgres").search(text)) for text in ("password postgres", "connector postgres-cdc", "postgresql")]
    [True, False, False]
    """
    text = re.escape(secret)
    if _WORD.fullmatch(secret):
        # A word that is a password, such as 'postgres', is a part of names that are no secret.
        return re.compile(rf"(?<![\w-]){text}(?![\w-])")
    return re.compile(text if len(secret) >= _SHORT else rf"(?<!\w){text}(?!\w)")


def _apart(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge spans that overlap; skip empty ones."""
    last: tuple[int, int] | None = None
    for start, end in spans:
        if start == end:
            continue
        if last is not None and start < last[1]:
            last = (last[0], max(last[1], end))
            continue
        if last is not None:
            yield last
        last = (start, end)
    if last is not None:
        yield last


def _spans_in(value: str) -> list[tuple[int, int]]:
    return [match.span("secret") for pattern in (_IN_URL, _GIVEN) for match in pattern.finditer(value)]


def _secrets_in(value: str) -> list[str]:
    return [value[start:end].strip("'") for start, end in _spans_in(value)]


def _without_files(value: str, mask: str) -> str:
    for secret in sorted(_of_files, key=len, reverse=True):
        value = value.replace(secret, mask)
    return value


def _replaced(value: str, mask: str) -> str:
    for start, end in reversed(list(_apart(sorted(_spans_in(value))))):
        value = value[:start] + mask + value[end:]
    return value
