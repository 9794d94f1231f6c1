"""Lines that are too long for DuckDB to read as one JSON object: how to recognize its error, and copies of files without them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from uuid import uuid4

from sqlstream.duck.text_files import LIMIT, lines_of


def is_too_long(error: Exception) -> bool:
    """Whether this is DuckDB's error about a line that is too long."""
    return '"maximum_object_size"' in str(error)


def without_long_lines(paths: Iterable[str], directory: str) -> Mapping[str, str]:
    """Copy the files with lines that are too long into a folder; return the paths of the copies by the paths of the files.

    In a copy, each such line is replaced by a short one that is no JSON, so that lines keep their numbers.
    """
    copies = {}
    for path in paths:
        copy = f"{directory}/{uuid4().hex}.json"
        has_long_lines = False
        with open(copy, "wb") as file:
            for line in lines_of(path):
                too_long = len(line) >= LIMIT
                has_long_lines = has_long_lines or too_long
                file.write(b"!\n" if too_long else line)
        if has_long_lines:
            copies[path] = copy
        else:
            os.unlink(copy)
    return copies
