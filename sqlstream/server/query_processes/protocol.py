"""The messages between the server and the process of a query.

The server sends a request and gets a reply. It requests each further part of an answer, so that a client that reads slowly pauses
its query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlstream.server.query_processes.worker import Worker

# The limits of a client's statement: a million operators take minutes to plan.
MOST_CHARACTERS = 1 << 20
MOST_TOKENS = 50_000
# The limits of a part of an answer, and of a row, in bytes: the memory of a query is in its process, not in the server.
PART_BYTES = 1 << 20
ROW_BYTES = 64 << 20


class Condition(IntEnum):
    """Whether a process can be used again: for any query (FINE), with a low priority (GIVES_WAY), or not at all (SPENT)."""

    FINE = 0
    GIVES_WAY = 1
    SPENT = 2


class ProcessAnswer(Protocol):
    """The answer to a request, in the process of the query."""

    @property
    def head(self) -> Any:
        """The first part, such as the columns."""

    @property
    def is_whole(self) -> bool:
        """Whether there are no more parts."""

    def part(self, *arguments: Any) -> Any:
        """Return the next part. Raises what the computation raises."""

    def close(self) -> None:
        """Release what the answer holds."""


class ProcessRequest(Protocol):
    """A request to a process; it is pickled."""

    def open(self, worker: Worker) -> ProcessAnswer:
        """Return the answer, with its head. Raises SqlStreamError."""


@dataclass(frozen=True, slots=True)
class NextPart:
    """A request for the next part of the open answer."""

    arguments: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """An answer with only one part."""

    head: Any
    is_whole: bool = True

    def part(self, *arguments: Any) -> Any:
        """Raises AssertionError: there is only one part."""
        raise AssertionError("there are no more parts")

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


@dataclass(frozen=True, slots=True)
class ComputationCall:
    """A request for the result of a function of the server, which is called in the process.

    `noun` names the computation in errors. It may use `more_memory` bytes more than a query; a process that did is not used
    again.
    """

    noun: str
    function: Callable[..., Any]
    arguments: Sequence[Any]
    more_memory: int = 0

    def open(self, worker: Worker) -> WholeAnswer:
        """Call the function, and return its result. Raises what the function raises."""
        return WholeAnswer(self.function(*self.arguments))


@dataclass(frozen=True, slots=True)
class ProcessReply:
    """A reply: a value or an error, whether it is the last part of the answer, and the condition of the process."""

    value: Any = None
    error: Exception | None = None
    is_last: bool = True
    condition: Condition = Condition.FINE
