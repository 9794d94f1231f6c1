"""Limits the server's memory for results that clients are reading."""

from __future__ import annotations

import threading

import pyarrow.flight as fl


class ResultMemory:
    """Counts the bytes of the results that clients are reading: sorted or grouped rows stay in memory until they are read."""

    def __init__(self, most: int | None):
        self._most = most
        self._changing = threading.Lock()
        self._held: dict[bytes, int] = {}

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self._most is not None

    def note(self, key: bytes, held: int) -> None:
        """Set the bytes of a result. Raises FlightUnavailableError if several results together exceed the limit."""
        with self._changing:
            self._held[key] = held
            total = sum(self._held.values())
            is_alone = total == held
        if self._most is not None and total > self._most and not is_alone:
            raise fl.FlightUnavailableError(
                f"the results that clients are reading hold {_megabytes(total)} of memory together, and {_megabytes(self._most)}"
                " is the most: ask again when others have been read to their end"
            )

    def forget(self, key: bytes) -> None:
        """Remove a result that has ended."""
        with self._changing:
            self._held.pop(key, None)


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"
