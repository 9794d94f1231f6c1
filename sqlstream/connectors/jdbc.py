"""Tables of Flink's connector `jdbc` as tables of the connector of their database, with the options that this one has.

The url says which database it is. Options of `jdbc` that need nothing are in `flink_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from sqlstream.connectors.translation import TranslatedOptions, UntranslatableTable
from sqlstream.errors import missing
from sqlstream.units import parse_boolean

JDBC = "jdbc"
_PREFIX = "jdbc:"
_SERVERS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
_FILES = {"sqlite": "sqlite", "duckdb": "duckdb"}
# Options with another name here.
_RENAMED = {
    "table-name": "table",
    "lookup.cache.max-rows": "lookup.partial-cache.max-rows",
    "lookup.cache.ttl": "lookup.partial-cache.expire-after-write",
    "lookup.cache.caching-missing-key": "lookup.partial-cache.cache-missing-key",
    "lookup.partial-cache.caching-missing-key": "lookup.partial-cache.cache-missing-key",
}
# Options of an earlier version, with which rows were cached.
_CACHED = ("lookup.cache.max-rows", "lookup.cache.ttl")
# Parameters of a url of PostgreSQL that libpq has, too.
_OF_LIBPQ = ("host", "sslmode", "sslcert", "sslkey", "sslrootcert", "options")
# Parameters of drivers in Java that change no value, with the values with which they do not; none: any.
_DRIVERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("useunicode", "rewritebatchedstatements", "allowpublickeyretrieval", "autoreconnect"), ()),
    **dict.fromkeys(("usecursorfetch", "useserverprepstmts", "cacheprepstmts", "stringtype", "preparethreshold"), ()),
    **dict.fromkeys(("tcpkeepalive", "connecttimeout", "sockettimeout", "logintimeout", "applicationname"), ()),
    **dict.fromkeys(("rewritebatchedinserts", "useinformationschema", "nullcatalogmeanscurrent"), ()),
    "characterencoding": ("utf-8", "utf8", "utf8mb4"),
    "servertimezone": ("utc", "gmt", "gmt+0", "z"),
    "connectiontimezone": ("utc", "gmt", "gmt+0", "z"),
    "usessl": ("false",),
    "ssl": ("false",),
    "sslmode": ("disabled", "disable"),
}


def translated(options: Mapping[str, str]) -> TranslatedOptions:
    """Translate the options of a table of `jdbc` into options of the connector for the database that its url names.

    Raises UntranslatableTable for a url of another database, and for parts of a url that cannot be translated.

    >>> url = "jdbc:mysql://db:3306/shop?useSSL=false"
    >>> dict(translated({"url": url, "table-name": "t", "username": "ann", "password": "a b"}).options)
    {'connector': 'mysql', 'url': 'mysql://ann:a%20b@db:3306/shop', 'table': 't'}
    >>> dict(translated({"url": "jdbc:sqlite:out/shop.db", "table-name": "t"}).options)
    {'connector': 'sqlite', 'path': 'out/shop.db', 'table': 't'}
    """
    url = options.get("url", "")
    kind = url.removeprefix(_PREFIX).partition(":")[0].lower()
    if not url.startswith(_PREFIX) or kind not in (*_SERVERS, *_FILES):
        urls = ", ".join(f"{_PREFIX}{name}:.." for name in (*_SERVERS, *_FILES))
        hint = f"Write one of {urls}; other databases are reached by a class: 'connector' = 'python'."
        what = f'the database "{kind}" of' if url.startswith(_PREFIX) and kind else "no url of a database in"
        raise UntranslatableTable(f'{what} the connector "jdbc"', "url", hint)
    rest = url.removeprefix(_PREFIX)[len(kind) + 1 :]
    if kind in _FILES:
        result, origins = {"connector": _FILES[kind], "path": _path(rest)}, {"connector": "connector", "path": "url"}
    else:
        address = _address(_SERVERS[kind], rest, options)
        result, origins = {"connector": _SERVERS[kind], "url": address}, {"connector": "connector", "url": "url"}
    for name, value in options.items():
        if name in ("connector", "url") or (name in ("username", "password") and kind in _SERVERS):
            continue
        result[_RENAMED.get(name, name)], origins[_RENAMED.get(name, name)] = value, name
    if all(name in options for name in _CACHED) and "lookup.cache" not in options:
        result["lookup.cache"], origins["lookup.cache"] = "PARTIAL", _CACHED[0]
    return TranslatedOptions(result, origins)


def _path(text: str) -> str:
    path = text.partition("?")[0].removeprefix("file:")
    if not path or path.startswith(":memory:"):
        raise UntranslatableTable(
            "a database in memory", "url", "Name a file, which jobs can share: jdbc:sqlite:out/shop.db."
        )
    return path


def _address(scheme: str, rest: str, options: Mapping[str, str]) -> str:
    """Return the url of a server, with user and password of the options, or of the parameters of the url."""
    try:
        url = urlsplit(f"{scheme}:{rest}" if rest.startswith("//") else f"{scheme}://localhost/{rest.lstrip('/')}")
        host, port = url.hostname or "localhost", url.port
    except ValueError as error:
        raise UntranslatableTable(
            f"not a url: {error}", "url", f"Write {_PREFIX}{scheme}://host:1234/database."
        ) from None
    parameters, login = dict[str, str](), {"user": options.get("username"), "password": options.get("password")}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name in login:
            login[name] = login[name] or value
        else:
            parameters |= _parameter(scheme, name, value)
    user = quote(login["user"] or "", safe="")
    secret = f":{quote(login['password'], safe='')}" if login["password"] else ""
    named = f"[{host}]" if ":" in host else host
    address = f"{user}{secret}@" * bool(user) + named + (f":{port}" if port else "")
    return urlunsplit((scheme, address, url.path, urlencode(parameters, quote_via=quote), ""))


def _parameter(scheme: str, name: str, value: str) -> dict[str, str]:
    """Translate a parameter of a JDBC url into parameters of our url; none if it has no effect here.

    Raises UntranslatableTable for a parameter that would have an effect.
    """
    if scheme == "postgresql" and name.lower() == "currentschema":
        return {"options": f"-csearch_path={value}"}
    if scheme == "postgresql" and name.lower() == "ssl":
        return {"sslmode": "verify-full"} if _is_true(value) else {}
    if scheme == "postgresql" and name.lower() in _OF_LIBPQ:
        return {name.lower(): value}
    without_effect = _DRIVERS.get(name.lower())
    if without_effect is None or (without_effect and value.lower() not in without_effect):
        hint = missing("parameter", name, (*(_OF_LIBPQ if scheme == "postgresql" else ()), "user", "password"))
        raise UntranslatableTable(f'the parameter "{name}={value}" of a url of the connector "jdbc"', "url", hint)
    return {}


def _is_true(text: str) -> bool:
    try:
        return text == "" or parse_boolean(text)
    except ValueError:
        return True
