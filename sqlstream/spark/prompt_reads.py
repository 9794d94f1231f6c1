"""Reads of a Python worker from Spark that TCP acknowledges at once.

Spark's JVM sends a task to its worker in several small writes, and TCP holds the second one back until the first is acknowledged
(Nagle's algorithm; the JVM does not switch it off, and has no setting for it). The worker has nothing to answer before it has the
whole task, so its kernel waits 40 ms before it acknowledges (delayed ACK): of the tasks of small batches nearly half waited.

Spark's Unix domain sockets (`spark.python.unix.domain.socket.enabled`) know no such delay, but its JVM remembers the path of
each task's socket until it ends: a job of small batches would fill its heap.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from typing import TypeAlias

# Linux alone has it, and it does not last: the kernel goes back to delays when the worker has sent something.
_QUICK = getattr(socket, "TCP_QUICKACK", None)
Main: TypeAlias = Callable[[io.BufferedReader, io.BufferedWriter], None]


class _PromptReads(io.RawIOBase):
    """What is read from a socket, through a buffered file."""

    def __init__(self, file: io.BufferedReader, connection: socket.socket, option: int):
        self._file, self._connection, self._option = file, connection, option

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._file.readinto1(buffer)
        # This acknowledges what has come, if that is still to be done.
        self._connection.setsockopt(socket.IPPROTO_TCP, self._option, 1)
        return count


def prompt(main: Main) -> Main:
    """Return the main function of a worker, whose reads from its socket are acknowledged at once."""

    def prompt_main(infile: io.BufferedReader, outfile: io.BufferedWriter) -> None:
        with socket.fromfd(infile.fileno(), socket.AF_INET, socket.SOCK_STREAM) as connection:
            main(_prompt_file(infile, connection), outfile)

    return prompt_main


def _prompt_file(file: io.BufferedReader, connection: socket.socket) -> io.BufferedReader:
    """Return a file with the same content; the same file if it is none of TCP, or on another system than Linux."""
    if _QUICK is None:
        return file
    try:
        connection.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
    except OSError:
        return file
    # As large as Spark's buffer: what is larger goes through neither of them.
    return io.BufferedReader(_PromptReads(file, connection, _QUICK), 65_536)
