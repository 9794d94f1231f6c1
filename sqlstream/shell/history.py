"""The entries of earlier sessions: a file in the user's state folder, without secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sqlstream.secrets import hidden

# How many entries are read.
MOST = 5000


def history_file() -> Path:
    """Return the path of the history: in `$XDG_STATE_HOME`, or `~/.local/state`."""
    folder = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(folder) / "sqlstream" / "history"


def read_history(file: Path) -> list[str]:
    """Return the last entries, oldest first; none if the file cannot be read."""
    try:
        lines = file.read_text("utf-8").rstrip("\n").split("\n")[-MOST:]
    except (OSError, UnicodeDecodeError):
        return []
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, str) else None


def append_history(file: Path, text: str) -> None:
    """Append an entry, as a line of JSON with stars for secrets; errors are ignored. Only its user can read the file."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(descriptor, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(hidden(text), ensure_ascii=False) + "\n")
    except OSError:
        # A shell works without a history.
        return
