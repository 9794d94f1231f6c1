"""Delta tables confined to some folders (`Table.within`): every file that the library opens for a table must be inside.

These are the files of the table's log, and those that the log names by a path below the table or by a URI: data files, files of
changes, deletion vectors, and sidecars, which are parts of checkpoints.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b85decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pyarrow.parquet as pq

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import check_files, leads_outside

_LOG = "_delta_log"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
# What parsers of URIs skip.
_SKIPPED = re.compile(r"[\x00-\x20]")
# Maps the digits of Z85, which names of deletion vectors use, to the digits of Python's base 85.
_DIGITS = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
_UUID_DIGITS = 20


def check_log(table: Table, root: str) -> None:
    """Raise DataError if the log of the table in the folder `root`, or a sidecar that it names, is outside of `table.within`."""
    if not table.within:
        return
    log = f"{root}/{_LOG}"
    check_tree(table, log)
    check_named(table, f"{log}/_sidecars", _sidecars(log))


def check_tree(table: Table, folder: str) -> None:
    """Raise DataError if a folder, or a link in it or below it, leads outside of `table.within`."""
    if table.within:
        check_files(table, _links(folder))


def check_named(table: Table, root: str, paths: Iterable[str]) -> None:
    """Raise DataError if one of `paths`, from the log of the table in the folder `root`, leads outside of `table.within`."""
    if not table.within:
        return
    for path in paths:
        locations = set(_locations(root, path))
        if (foreign := next((location for location in locations if not os.path.isabs(location)), None)) is not None:
            raise leads_outside(table, foreign)
        check_files(table, locations)


def check_all_named(table: Table, root: str) -> None:
    """Raise DataError if a file that any version in the log names is outside of `table.within`."""
    if table.within:
        check_named(table, root, named_files(_logged(f"{root}/{_LOG}")))


def named_files(actions: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the paths of the files that actions of the log name."""
    for action in actions:
        for kind in ("add", "cdc", "remove"):
            if (named := action.get(kind)) is not None:
                yield named.get("path", "")
                vector = named.get("deletionVector") or {}
                if vector.get("storageType", "i") != "i":
                    yield _vector(vector["storageType"], vector.get("pathOrInlineDv", ""))


def _logged(log: str) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of a log, including the actions in its checkpoints."""
    for folder in (log, f"{log}/_sidecars"):
        with suppress(FileNotFoundError):
            for entry in os.scandir(folder):
                if entry.name.endswith(".json"):
                    with open(entry.path) as file:
                        yield from (json.loads(line) for line in file if line.strip())
                elif entry.name.endswith(".parquet"):
                    there = {"add", "remove", "cdc"} & set(pq.read_schema(entry.path).names)
                    yield from pq.read_table(entry.path, columns=sorted(there)).to_pylist()


def _vector(kind: str, name: str) -> str:
    """Return the path of the file of a deletion vector, whose name is a URI, or a folder and a UUID.

    >>> _vector("u", "ab^-aqEH.-t@S}K{vb[*k^")
    'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    if kind != "u":
        return name
    folder, digits = name[:-_UUID_DIGITS], name[-_UUID_DIGITS:]
    file = f"deletion_vector_{UUID(bytes=b85decode(digits.translate(_DIGITS)))}.bin"
    return f"{folder}/{file}" if folder else file


def _locations(root: str, path: str) -> Iterator[str]:
    """Yield all local paths that a path in the log may stand for; a URI of another store is yielded unchanged.

    Delta libraries differ in how often they percent-decode a path. Some take it for a part of a URI, in which `\\` means `/`.
    """
    forms = [path]
    while (decoded := unquote(forms[-1])) != forms[-1]:
        forms.append(decoded)
    for form in forms:
        for spelled in (form, _SKIPPED.sub("", form).replace("\\", "/")):
            scheme = _SCHEME.match(spelled)
            if scheme is None:
                yield os.path.join(root, spelled)
            elif scheme[0].lower() == "file:":
                yield os.path.join(root, urlsplit(spelled).path)
            else:
                yield spelled


def _links(folder: str) -> Iterator[str]:
    """Yield a folder, and each symbolic link below it before following it."""
    yield folder
    waiting, seen = [folder], set[str]()
    while waiting:
        location = waiting.pop()
        if (real := os.path.realpath(location)) in seen:
            continue
        seen.add(real)
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(location):
                if entry.is_symlink():
                    yield entry.path
                if entry.is_dir():
                    waiting.append(entry.path)


def _sidecars(log: str) -> Iterator[str]:
    """Yield the paths of the sidecars that the checkpoints of a log name."""
    with suppress(FileNotFoundError):
        for entry in os.scandir(log):
            if ".checkpoint." in entry.name:
                stat = entry.stat()
                yield from _sidecars_of(entry.path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def _sidecars_of(checkpoint: str, modified: int, size: int) -> tuple[str, ...]:
    if checkpoint.endswith(".json"):
        with open(checkpoint) as file:
            named = [json.loads(line).get("sidecar") for line in file if line.strip()]
    elif "sidecar" in pq.read_schema(checkpoint).names:
        named = pq.read_table(checkpoint, columns=["sidecar"])["sidecar"].to_pylist()
    else:
        return ()
    return tuple(one["path"] for one in named if one is not None)
