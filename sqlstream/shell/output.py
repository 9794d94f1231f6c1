"""Where the shell writes: notices and errors to the terminal, results there or into a file."""

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


class Standard(io.TextIOBase):
    """Standard output, or standard error, as it is at the moment: a prompt puts another stream in its place."""

    def __init__(self, name: str):
        self._name = name

    @property
    def _stream(self) -> TextIO:
        return cast(TextIO, getattr(sys, self._name))

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()


class ShellOutput:
    """What the shell shows. On a terminal notices are beside results, otherwise they go to standard error."""

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
        """Where results go."""
        return self._file or cast(TextIO, Standard("stdout"))

    @property
    def form(self) -> str:
        """How results are written: `table`, `csv` or `json`."""
        return self._form

    @property
    def can_redraw(self) -> bool:
        """Whether results can be drawn over earlier ones."""
        return self._file is None and self.console.is_terminal

    def redirect(self, path: str | None) -> None:
        """Write results into a file from now on, as its name ends, or to the terminal again."""
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
        """Write a notice."""
        self._notices.print(Text(text, style=style), soft_wrap=True)

    def error(self, error: SqlStreamError) -> None:
        """Write an error: its first line in red, the carets in the statement."""
        width = self._notices.width if self._notices.is_terminal else None
        first, _, rest = error.render(width).partition("\n")
        self.say(first, "bold red")
        for line in rest.splitlines():
            caret = line.strip(" |") and not line.strip(" |^")
            self.say(line, "red" if caret else "green" if line.startswith("hint: ") else "")

    def warn(self, job: str, warning: SqlStreamError) -> None:
        """Write a warning about a job, with its place."""
        width = self._notices.width if self._notices.is_terminal else None
        self.say(f"{job}: {warning.render(width)}", "yellow")

    def result(self, shown: RenderableType) -> None:
        """Write what stays of a result that was drawn."""
        if self._file is None:
            self.console.print(shown)
        else:
            Console(file=self._file, width=PIPE_WIDTH, highlight=False, markup=False).print(shown)

    @contextmanager
    def status(self) -> Iterator[Status]:
        """Show a line that changes, as long as the context lasts; none where there is no terminal."""
        with Status("", console=self._notices) as status:
            yield status

    def close(self) -> None:
        """Finish the file that results go to, if there is one."""
        self.redirect(None)


def unexpected(error: BaseException) -> SqlStreamError:
    """Return an error that nobody foresaw as people should see it: what it is, and where it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = "; ".join(str(error).split("\n")) or "it says nothing more"
    return SqlStreamError(
        f"unexpected {type(error).__name__}{place}",
        detail=f"{text}.",
        hint="This is a mistake in sqlstream: please report it with the statement. The shell and its jobs go on.",
    )
