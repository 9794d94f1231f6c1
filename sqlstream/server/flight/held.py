"""What the results that clients are reading hold of the server's memory, together."""

from __future__ import annotations

import threading

import pyarrow.flight as fl


class HeldMemory:
    """Counts bytes by result. A client that reads slowly, or not at all, keeps what its query has sorted or grouped."""

    def __init__(self, most: int | None):
        self._most = most
        self._changing = threading.Lock()
        self._held: dict[bytes, int] = {}

    @property
    def is_limited(self) -> bool:
        return self._most is not None

    def note(self, key: bytes, held: int) -> None:
        """Note what a result holds by now. Raises FlightUnavailableError where it holds too much beside others; alone it may."""
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
        """Forget a result that is over."""
        with self._changing:
            self._held.pop(key, None)


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"
