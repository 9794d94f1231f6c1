"""`sqlstream.toml`: the settings of a project, with profiles, and variables of the environment that override them.

Arguments of a command or of `Session` count first, then the environment, the profile, the file, the default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlstream import secrets
from sqlstream.errors import BindError, SourceText, Span, UsageError, missing
from sqlstream.options import OPTIONS, Options
from sqlstream.sql.secret_files import secret_of_file

FILE = "sqlstream.toml"
CONFIG, PROFILE = "SQLSTREAM_CONFIG", "SQLSTREAM_PROFILE"
_PREFIX = "SQLSTREAM_"
# Variables that are no settings: the modules that read them document them.
_OTHERS = (CONFIG, PROFILE, *(f"{_PREFIX}{name}" for name in ("TOKEN", "LOG_FORMAT", "CACHE", "CACHE_SIZE", "CDS")))
# Variables that Kubernetes sets for a Service whose name begins with "sqlstream".
_SERVICE = re.compile(
    r"SQLSTREAM_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)"
)
_SERVICE_URL = re.compile(r"(?:tcp|udp|sctp)://.*")
DEFAULT, ENVIRONMENT, ARGUMENT = "default", "environment", "argument"
_FOLDERS: Mapping[str, str] = {"warehouse": "warehouse", "catalog": "catalog", "udfs": "udfs"}
# The settings of the server with their defaults; None: none.
_SERVER_DEFAULTS: Mapping[str, Any] = {
    "server.host": "127.0.0.1",
    "server.port": 8642,
    "server.postgres": None,
    "server.flight": None,
    "server.tokens": None,
    "server.tls-cert": None,
    "server.tls-key": None,
    "server.insecure": False,
    "server.names": [],
    "server.paths": [],
}
# The settings of the server with the types of their values, and the settings that name files.
SERVER: Mapping[str, type] = {
    "server.host": str,
    "server.port": int,
    "server.postgres": int,
    "server.flight": str,
    "server.tokens": str,
    "server.tls-cert": str,
    "server.tls-key": str,
    "server.insecure": bool,
    "server.names": list,
    "server.paths": list,
}
_SERVER_FILES = ("server.tokens", "server.tls-cert", "server.tls-key", "server.paths")
_OPTIONS, _SPARK = "options.", "spark."
_KNOWN = (*_FOLDERS, *(f"{_OPTIONS}{name}" for name in OPTIONS), *SERVER)
_VARIABLE = re.compile(r"\$(\$)?\{(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?)\}")
_HEADER = re.compile(r"\s*\[(?P<key>[^\[\]]+)\]")
_ENTRY = re.compile(r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")
_LINE = re.compile(r"""^\s*(?P<key>[\w."' -]+?)\s*=\s*(?P<value>.+?)\s*$""", re.MULTILINE)
_PLAIN = ("tokens", "server.tokens")
_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of a setting (text, number, boolean or list), and its origin: a line of a file, a variable or the default."""

    name: str
    value: Any
    origin: str
    span: Span | None = None

    @property
    def shown(self) -> str:
        """The value as text, with secrets masked; a list is joined by commas."""
        values = self.value if isinstance(self.value, (list, tuple)) else [] if self.value is None else [self.value]
        texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
        if self.name in _SERVER_FILES:
            return ", ".join(texts)
        return ", ".join(secrets.shown(self.name, text) for text in texts)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of a project by name: folders, `options.*`, `spark.*` and `server.*`."""

    settings: Mapping[str, Setting]
    file: str | None = None
    profile: str | None = None

    def folder(self, name: str) -> str:
        """Return the path or URI of `catalog`, `udfs` or `warehouse`; "" if nothing was loaded."""
        return str(self.settings[name].value) if name in self.settings else ""

    @property
    def options(self) -> dict[str, str]:
        """The options of sessions that are not defaults, and Spark's, by their names without `options.`."""
        options = {
            name.removeprefix(_OPTIONS): _text(one.value)
            for name, one in self.settings.items()
            if name.startswith(_OPTIONS) and one.origin != DEFAULT
        }
        return options | {n: _text(one.value) for n, one in self.settings.items() if n.startswith(_SPARK)}

    @property
    def option_origins(self) -> dict[str, str]:
        """The origin of each option of sessions that is not a default: a line of the file, or the environment."""
        return {
            name.removeprefix(_OPTIONS): one.origin.replace(f"{ENVIRONMENT}: ", "the environment: ")
            for name, one in self.settings.items()
            if name.startswith(_OPTIONS) and one.origin != DEFAULT
        }

    @property
    def server(self) -> dict[str, Any]:
        """The settings of the server that are not defaults, by their names without `server.`."""
        return {
            n.removeprefix("server."): s.value for n, s in self.settings.items() if n in SERVER and s.origin != DEFAULT
        }


NOTHING = Configuration({})


def load(root: str, environment: Mapping[str, str] | None = None) -> Configuration:
    """Return the configuration of the project in the folder `root`.

    Its file is the one that SQLSTREAM_CONFIG names, else `sqlstream.toml` in the folder, if that exists. Raises UsageError and
    BindError, which name the file and the line.
    """
    environment = os.environ if environment is None else environment
    settings = {name: Setting(name, os.path.join(root, folder), DEFAULT) for name, folder in _FOLDERS.items()}
    settings |= {f"{_OPTIONS}{o.name}": Setting(f"{_OPTIONS}{o.name}", o.default, DEFAULT) for o in OPTIONS.values()}
    settings |= {name: Setting(name, value, DEFAULT) for name, value in _SERVER_DEFAULTS.items()}
    check_variables(environment)
    path, profile = environment.get(CONFIG), environment.get(PROFILE) or None
    if path is None and os.path.isfile(os.path.join(root, FILE)):
        path = os.path.join(root, FILE)
    if path:
        for one in _of_file(os.path.abspath(path), root, profile, environment):
            settings[one.name] = one
    elif profile is not None:
        raise UsageError(f'there is no file for the profile "{profile}"', hint=f"Write a {FILE}, or name one.")
    for one in _of_environment(environment):
        settings[one.name] = one
    for one in settings.values():
        if one.origin != DEFAULT:
            _check(one)
            secrets.remember({one.name: _text(one.value)} if one.name not in SERVER else {})
    return Configuration(settings, path or None, profile)


def _of_file(path: str, root: str, profile: str | None, environment: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the settings of a file, then the settings in its section for `profile`, which override them."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f'configuration "{path}" cannot be read', detail=str(error)) from None
    name = os.path.relpath(path, root) if path.startswith(root + os.sep) else path
    source = SourceText(name, text)
    for line in _LINE.finditer(text):
        # Errors show lines, also of an invalid file.
        secrets.remember({line["key"]: line["value"].strip("\"' ")} if line["key"].strip() not in _PLAIN else {})
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _broken(source, str(error)) from None
    positions = _KeyPositions(source)
    profiles = content.pop("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(values, dict) for values in profiles.values()):
        raise UsageError("a profile is a table", positions.of(("profiles",)), hint="Such as [profiles.dev].")
    for at, table in ((("profiles", p), values) for p, values in profiles.items() if p != profile):
        # Profiles that are not chosen are checked, too.
        for one in _settings(table, at, positions, name, os.path.dirname(path), None):
            _check(one)
    if profile is not None and profile not in profiles:
        hint = missing("profile", profile, profiles) if profiles else f"{name} has no profiles: [profiles.{profile}]."
        raise UsageError(f'profile "{profile}" does not exist', hint=hint)
    variables = _Environment(environment)
    yield from _settings(content, (), positions, name, os.path.dirname(path), variables)
    at = ("profiles", profile or "")
    chosen = (
        []
        if profile is None
        else [*_settings(profiles[profile], at, positions, name, os.path.dirname(path), variables)]
    )
    variables.check()
    for one in chosen:
        _check(one)
        yield one


def _settings(
    content: Any,
    at: _Key,
    positions: _KeyPositions,
    file: str,
    folder: str,
    environment: _Environment | None,
) -> Iterator[Setting]:
    """Yield the settings in a TOML table, whose key is `at`; without an `environment`, variables are not replaced."""
    for key, value in _leaves(content, ()):
        span = positions.of((*at, *key))
        name = _name(key)
        if name is None:
            shown = ".".join(key)
            raise UsageError(f'"{shown}" is no setting', span, hint=missing("setting", shown, _KNOWN))
        if environment is not None:
            value = _with_variables(value, span, environment)
        if name in _FOLDERS or name in _SERVER_FILES:
            value = [_path(v, folder) for v in value] if isinstance(value, list) else _path(value, folder)
        line = f":{span.source.position(span.start)[0]}" if span is not None else ""
        yield Setting(name, value, f"{file}{line}" + (f" [{'.'.join(at)}]" if at else ""), span)


def _leaves(content: Any, at: _Key) -> Iterator[tuple[_Key, Any]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, (*at, key))
    elif at:
        yield at, content


def _name(key: _Key) -> str | None:
    """Return the name of the setting that a TOML key sets; None if no setting has this key."""
    joined = ".".join(key)
    match key:
        case (folder,) if folder in _FOLDERS:
            return folder
        case ("options", _, *_):
            option = joined.removeprefix(_OPTIONS)
            # `Options` checks the rest: whether the option exists.
            return option if option.startswith(_SPARK) else f"{_OPTIONS}{option.lower()}"
        case ("spark", _, *_):
            return joined.removeprefix(_SPARK) if joined.startswith("spark.spark.") else joined
        case _:
            return joined if joined in SERVER else None


def _of_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    names = {variable(name): name for name in _KNOWN}
    for key, text in environment.items():
        if key in names and not _is_of_service(key, text):
            yield Setting(names[key], _parsed(names[key], text, key), f"{ENVIRONMENT}: {key}")


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise UsageError for a variable that begins with SQLSTREAM_ and is no setting: it may be misspelt."""
    names = (*_OTHERS, *map(variable, _KNOWN))
    for key, text in environment.items():
        if key.startswith(_PREFIX) and key not in names and not _is_of_service(key, text):
            detail = f"Variables that begin with {_PREFIX} are settings: call others something else."
            hint = missing("variable", key, names)
            raise UsageError(f"{key} in the environment is no setting", detail=detail, hint=hint)


def _is_of_service(name: str, value: str) -> bool:
    """Return whether Kubernetes set a variable for a Service.

    >>> _is_of_service("SQLSTREAM_SERVICE_PORT_HTTP", "8642"), _is_of_service("SQLSTREAM_SERVER_PORT", "tcp://10.0.0.1:8642")
    (True, True)
    >>> _is_of_service("SQLSTREAM_SERVER_PORT", "8642")
    False
    """
    return _SERVICE.fullmatch(name) is not None or (
        name.endswith("_PORT") and _SERVICE_URL.fullmatch(value) is not None
    )


def variable(name: str) -> str:
    """Return the variable of the environment that overrides a setting.

    >>> variable("warehouse"), variable("options.parallelism.default")
    ('SQLSTREAM_WAREHOUSE', 'SQLSTREAM_OPTIONS_PARALLELISM_DEFAULT')
    """
    return "SQLSTREAM_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _parsed(name: str, text: str, key: str) -> Any:
    kind = SERVER.get(name, str)
    if kind is list:
        return [os.path.abspath(p) if name in _SERVER_FILES else p for p in text.split(",") if p]
    if kind is int and text.isdigit():
        return int(text)
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is not str:
        raise UsageError(f"{key} in the environment: needs {_needed(name)}")
    return _path(text, os.getcwd()) if name in _FOLDERS or name in _SERVER_FILES else text


def _check(setting: Setting) -> None:
    """Raise UsageError or BindError unless the value of a setting is valid."""
    name, value = setting.name, setting.value
    if name in SERVER:
        kind = SERVER[name]
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not fits or (kind is list and not all(isinstance(v, str) for v in value)):
            raise UsageError(f'setting "{name}" needs {_needed(name)}', setting.span)
    elif name in _FOLDERS:
        if not isinstance(value, str) or not value:
            raise UsageError(f'setting "{name}" needs the path of a folder', setting.span)
    elif isinstance(value, (list, dict)):
        raise UsageError(f'setting "{name}" needs one value', setting.span)
    elif "${" not in _text(value):
        try:
            Options().set(name.removeprefix(_OPTIONS), _text(value), setting.span, setting.span)
        except BindError as error:
            raise (error if setting.span else UsageError(f"{error.message}, in {setting.origin}")) from None


def _needed(name: str) -> str:
    return {str: "a text", int: "a whole number", bool: "true or false", list: "a list of texts"}[SERVER[name]]


class _Environment:
    """Variables of the environment. It collects those that a file uses and that are not set: one error names them all."""

    def __init__(self, variables: Mapping[str, str]):
        self._variables = variables
        self._missing: dict[str, Span | None] = {}

    def text(self, name: str, default: str | None, span: Span | None) -> str | None:
        """Return the value of a variable; None if it is missing, which `check` reports."""
        value = self._variables.get(name, default)
        if value is None:
            self._missing.setdefault(name, span)
        return value

    def check(self) -> None:
        """Raise BindError that names all missing variables, at the position of the first."""
        if not self._missing:
            return
        [(first, span), *others] = self._missing.items()
        if not others:
            hint = f"Set it, or write a default: ${{{first}:-..}}."
            raise BindError(f'the environment variable "{first}" is not set', span, hint=hint)
        names = ", ".join(f'"{name}"' for name in self._missing)
        hint = f"Set them, or write defaults: ${{{first}:-..}}."
        raise BindError(f"environment variables are not set: {names}", span, hint=hint)


def _with_variables(value: Any, span: Span | None, environment: _Environment) -> Any:
    """Return a value with `${NAME}`, `${NAME:-default}` and `${file:PATH}` replaced; `$${..}` is the literal text `${..}`."""
    if isinstance(value, list):
        return [_with_variables(one, span, environment) for one in value]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        if match["file"] is not None:
            return secret_of_file(match["file"], span)
        text = environment.text(match["name"], match["default"], span)
        return match[0] if text is None else text

    return _VARIABLE.sub(put, value)


def _path(value: Any, folder: str) -> Any:
    return (
        value
        if not isinstance(value, str) or not value or "://" in value
        else os.path.normpath(os.path.join(folder, value))
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _broken(source: SourceText, message: str) -> UsageError:
    """Return the error for a text that is not valid TOML, at the position that the parser's message names."""
    span = None
    if at := _AT.search(message):
        start = sum(len(line) + 1 for line in source.text.split("\n")[: int(at[1]) - 1]) + int(at[2]) - 1
        span = Span(source, start, start + 1)
    return UsageError(f"this is no TOML: {_AT.sub('', message).strip()}", span)


class _KeyPositions:
    """The positions of keys in a TOML text; keys that do not begin a line are not found."""

    def __init__(self, source: SourceText):
        self._source = source
        self._spans: dict[_Key, tuple[int, int]] = {}
        table: _Key = ()
        start = 0
        for line in source.text.splitlines(keepends=True):
            if match := _HEADER.match(line):
                table = _key(match["key"]) or table
                self._add(table, match, start)
            elif (match := _ENTRY.match(line)) and (key := _key(match["key"])):
                self._add((*table, *key), match, start)
            start += len(line)

    def _add(self, key: _Key, match: re.Match[str], start: int) -> None:
        self._spans.setdefault(key, (start + match.start("key"), start + match.end("key")))

    def of(self, key: _Key) -> Span | None:
        """Return the position of a key, or of the innermost table around it; None if neither is known."""
        at = next((self._spans[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self._spans), None)
        return None if at is None else Span(self._source, *at)


def _key(text: str) -> _Key | None:
    """Return the parts of a key as TOML reads it.

    >>> _key('options."a.b".c')
    ('options', 'a.b', 'c')
    """
    try:
        content: Any = tomllib.loads(f"{text.strip()} = 0")
    except tomllib.TOMLDecodeError:
        return None
    parts: list[str] = []
    while isinstance(content, dict):
        [(part, content)] = content.items()
        parts.append(part)
    return tuple(parts)
