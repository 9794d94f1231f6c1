"""The lengths of windows and gaps, in seconds."""

from __future__ import annotations

WINDOW, SLIDE = 10, 2
STEP, MINUTE, TEN_MINUTES = 10, 60, 600
# A key has a row every 125 s, so a session holds five of them, and stays open over several batches.
GAP = 200
# A key has a row every 10 ms: one in 150 begins a session.
SHORT_GAP = 0.05


def interval(seconds: float) -> str:
    """Return a length in SQL; DuckDB's takes the same."""
    return f"INTERVAL '{seconds}' SECOND"
