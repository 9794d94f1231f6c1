"""Notes about a changed n of a Top-N."""

from __future__ import annotations

from sqlstream.jobs.upgrades.changes import SINCE


def limit_words(before: int | None, after: int | None) -> str:
    """Return the old and the new n in words; None stands for all rows."""
    was, now = ("all" if limit is None else limit for limit in (before, after))
    return f"n: was {was}, is {now}"


def limit_notes(before: int | None, after: int | None) -> list[str]:
    """Return notes about a changed n of an operator that stores only the first n rows."""
    if before == after:
        return []
    words = limit_words(before, after)
    if after is not None and (before is None or after < before):
        return [f"{words}; rows beyond it are forgotten"]
    return [
        f"{words}; of rows so far the best {before} were kept, what comes after them is missing; {SINCE} all rows count"
    ]
