"""The prompt: statements of several lines, completion, colours, history."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output as TerminalOutput
from prompt_toolkit.patch_stdout import patch_stdout
from pygments.lexers.sql import SqlLexer

from sqlstream.duck.interrupts import keyboard_interrupts
from sqlstream.errors import SourceText, SqlStreamError, UsageError
from sqlstream.session.known_names import KnownNames
from sqlstream.session.session import Session
from sqlstream.shell.commands import COMMANDS, run
from sqlstream.shell.completion import SqlCompleter, Suggestions
from sqlstream.shell.entries import is_whole
from sqlstream.shell.history import append_history, read_history
from sqlstream.shell.keys import hidden_keys
from sqlstream.shell.output import unexpected
from sqlstream.shell.shell import Shell

PROMPT = "sqlstream> "


class Prompt:
    """Reads entries from a terminal, and appends them to the history."""

    def __init__(
        self,
        session: Session,
        history: Path,
        *,
        input: Input | None = None,
        output: TerminalOutput | None = None,
    ):
        self._file, self._history = history, InMemoryHistory()
        for entry in read_history(history):
            self._history.append_string(entry)
        suggestions = Suggestions(KnownNames(session), {name: command.about for name, command in COMMANDS.items()})
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: " " * (width - 3) + "-> ",
            lexer=PygmentsLexer(SqlLexer),
            completer=cast(Completer, SqlCompleter(suggestions)),
            complete_in_thread=True,
            auto_suggest=AutoSuggestFromHistory(),
            history=self._history,
            key_bindings=_keys(),
            enable_open_in_editor=True,
            input=input,
            output=output,
        )

    def read(self) -> str:
        """Return the next entry. Raises EOFError on Ctrl-D or `leave`, and KeyboardInterrupt on Ctrl-C."""
        with patch_stdout(raw=True):
            # Bytes that are no UTF-8 become surrogates, which nothing else accepts.
            text = self._session.prompt().encode("utf-8", "replace").decode("utf-8")
        if text.strip():
            append_history(self._file, text)
        return text

    def leave(self) -> bool:
        """End a waiting `read`, which then raises EOFError; return whether one waits. Signal handlers may call this."""
        app = self._session.app
        if app.loop is None or not app.is_running:
            return False

        def end() -> None:
            if app.is_running and not app.is_done:
                app.exit(exception=EOFError)

        app.loop.call_soon_threadsafe(end)
        return True


def _keys() -> KeyBindings:
    keys = KeyBindings()

    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    keys.add("enter", filter=~completion_is_selected)(enter)
    return keys


def interact(shell: Shell, prompt: Prompt) -> None:
    """Run the entries of a prompt until `\\q` or Ctrl-D. Errors and Ctrl-C end a statement, not the shell."""
    while not shell.is_over:
        try:
            text = prompt.read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            with keyboard_interrupts(), hidden_keys():
                run(shell, SourceText("shell", text))
        except SqlStreamError as error:
            shell.output.error(error)
        except OSError as error:
            # Such as a full disk, where the file for results is.
            shell.output.error(UsageError(error.strerror or str(error)))
        except KeyboardInterrupt:
            shell.output.say("interrupted", "yellow")
        except SystemExit:
            raise
        except BaseException as error:
            # Whatever it is, jobs run in this shell. A panic of Rust code is not an Exception.
            shell.output.error(unexpected(error))
