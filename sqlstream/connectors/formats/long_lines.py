"""Lines that are longer than what DuckDB reads as one JSON object: found, and left out of a copy of their file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from uuid import uuid4

from sqlstream.duck.text_files import LIMIT, lines_of


def is_too_long(error: Exception) -> bool:
    """Whether this is what DuckDB says about such a line."""
    return '"maximum_object_size"' in str(error)


def without_long_lines(paths: Iterable[str], directory: str) -> Mapping[str, str]:
    """Return the copies of those files that have such lines, where each stands as a short one that is no JSON."""
    copies = {}
    for path in paths:
        copy = f"{directory}/{uuid4().hex}.json"
        found = False
        with open(copy, "wb") as file:
            for line in lines_of(path):
                too_long = len(line) >= LIMIT
                found = found or too_long
                file.write(b"!\n" if too_long else line)
        if found:
            copies[path] = copy
        else:
            os.unlink(copy)
    return copies
