"""The difference between two plans of a job, as text for people."""

from __future__ import annotations

import difflib
import itertools

# The most lines of a difference that are shown, and the most characters of a line.
_DIFFERENCES = 6
_LINE = 120


def difference(before: str, after: str) -> str:
    """Return the changed lines of two plan texts: at most 6 lines, and of a long line about 120 characters around the change.

    >>> difference("Filter x", "Filter x")
    'Both plans are described in the same words; their values differ.'
    """
    if before == after:
        return "Both plans are described in the same words; their values differ."
    old, new = before.splitlines(), after.splitlines()
    lines = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        pairs = itertools.zip_longest(old[a:b], new[c:d], fillvalue="")
        for ours, theirs in pairs:
            # One may be the beginning of the other.
            shorter = min(len(ours), len(theirs))
            start = next((i for i, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), shorter)
            lines += [f"-{_excerpt(ours, start)}"] if ours else []
            lines += [f"+{_excerpt(theirs, start)}"] if theirs else []
    more = len(lines) - _DIFFERENCES
    return "\n".join(
        ["--- the job's", "+++ yours", *lines[:_DIFFERENCES], *([f"({more} more lines differ)"] if more > 0 else [])]
    )


def _excerpt(line: str, start: int) -> str:
    """Return a line; a long one is cut to 120 characters that begin shortly before `start`.

    >>> _excerpt("x" * 150 + " AS y", 151)
    '...xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx AS y'
    """
    if len(line) <= _LINE:
        return line
    first = max(0, start - _LINE // 3)
    part = line[first : first + _LINE]
    return f"{'...' if first else ''}{part}{'...' if first + _LINE < len(line) else ''}"
