"""Files with secrets: `${file:PATH}`."""

from __future__ import annotations

from pathlib import Path

from sqlstream import secrets
from sqlstream.errors import BindError, Span


def secret_of_file(path: str, span: Span | None) -> str:
    """Return the content of a file without its last line end, masked everywhere from now on. Raises BindError."""
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
        raise BindError(f'file "{path}" of a secret cannot be read: {reason}', span) from None
    secrets.remember_file(text)
    return text
