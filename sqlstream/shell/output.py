"""The output of the shell: notices and errors to the terminal, results there or into a file."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from rich.console import Console, RenderableType
from rich.status import Status
from rich.text import Text

from sqlstream.errors import SqlStreamError, UsageError
from sqlstream.session.rendering import PIPE_WIDTH


class StandardStream(io.TextIOBase):
    """Standard output or standard error at the time of each call: a prompt replaces the stream."""

    def __init__(self, name: str):
        self._name = name

    @property
    def _stream(self) -> TextIO:
        return cast(TextIO, getattr(sys, self._name))

    def isatty(self) -> bool:
        """Return whether the present stream is a terminal."""
        return self._stream.isatty()

    def write(self, text: str) -> int:
        """Write to the present stream; return the number of characters."""
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush the present stream."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the file descriptor of the present stream."""
        return self._stream.fileno()


class ShellOutput:
    """Writes what the shell shows. On a terminal notices are among the results, otherwise they go to standard error."""

    def __init__(self, *, interactive: bool):
        self.is_interactive = interactive
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._notices = (
            self.console if interactive else Console(stderr=True, highlight=False, markup=False, emoji=False)
        )
        self._file: TextIO | None = None
        self._form = "table"

    @property
    def stream(self) -> TextIO:
        """The stream for results: the file, or standard output."""
        return self._file or cast(TextIO, StandardStream("stdout"))

    @property
    def form(self) -> str:
        """The format of results: `table`, `csv` or `json`."""
        return self._form

    @property
    def can_redraw(self) -> bool:
        """Whether results can be drawn over earlier ones: on a terminal."""
        return self._file is None and self.console.is_terminal

    def redirect(self, path: str | None) -> None:
        """Write further results into a file, in the format of its ending; or to the terminal (None). Raises UsageError."""
        if self._file is not None:
            file, self._file, self._form = self._file, None, "table"
            try:
                file.close()
            except OSError as e:
                raise UsageError(f'file "{file.name}" cannot be written', detail=e.strerror or str(e)) from e
        if path is None:
            return
        ending = os.path.splitext(path)[1].lower()
        try:
            self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115
        except OSError as e:
            raise UsageError(f'file "{path}" cannot be written', detail=e.strerror or str(e)) from e
        self._form = ending[1:] if ending in (".csv", ".json") else "table"

    def say(self, text: str, style: str = "") -> None:
        """Print a notice, in a style of rich's."""
        self._notices.print(Text(text, style=style), soft_wrap=True)

    def error(self, error: SqlStreamError) -> None:
        """Print an error: its first line and its carets in red, its hint in green."""
        width = self._notices.width if self._notices.is_terminal else None
        first, _, rest = error.render(width).partition("\n")
        self.say(first, "bold red")
        for line in rest.splitlines():
            caret = line.strip(" |") and not line.strip(" |^")
            self.say(line, "red" if caret else "green" if line.startswith("hint: ") else "")

    def warn(self, job: str, warning: SqlStreamError) -> None:
        """Print a warning about a job, with its position."""
        width = self._notices.width if self._notices.is_terminal else None
        self.say(f"{job}: {warning.render(width)}", "yellow")

    def result(self, shown: RenderableType) -> None:
        """Write the last state of a result that was drawn."""
        if self._file is None:
            self.console.print(shown)
        else:
            Console(file=self._file, width=PIPE_WIDTH, highlight=False, markup=False).print(shown)

    @contextmanager
    def status(self) -> Iterator[Status]:
        """Show a line that changes, inside of the context; only on a terminal."""
        with Status("", console=self._notices) as status:
            yield status

    def close(self) -> None:
        """Close the file for results, if there is one. Raises UsageError."""
        self.redirect(None)


def unexpected(error: BaseException) -> SqlStreamError:
    """Return an unforeseen exception as an error for people: its class, its message, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = "; ".join(str(error).split("\n")) or "it says nothing more"
    return SqlStreamError(
        f"unexpected {type(error).__name__}{location}",
        detail=f"{text}.",
        hint="This is a mistake in sqlstream: please report it with the statement. The shell and its jobs go on.",
    )
