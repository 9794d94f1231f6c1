"""What the server and the process of a query say to each other.

The server sends a request, and gets a reply; of an answer with more parts it asks for each of them, so that a client that reads
slowly lets its query wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlstream.server.query_processes.worker import Worker

# More than that the text that a client gives a statement does not have: a million operators take minutes to plan.
MOST_CHARACTERS = 1 << 20
MOST_TOKENS = 50_000
# No larger part of an answer is sent to the server, and no larger row: what a query may have of memory it has in its process.
PART_BYTES = 1 << 20
ROW_BYTES = 64 << 20


class Condition(IntEnum):
    """What a process can be used for: any query, queries that give way to everything else, or none."""

    FINE = 0
    GIVES_WAY = 1
    SPENT = 2


class ProcessAnswer(Protocol):
    """The answer to a request, in the process of the query."""

    @property
    def head(self) -> Any:
        """What is said at once."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing more is to be said."""

    def part(self, *arguments: Any) -> Any:
        """Return the next part."""

    def close(self) -> None:
        """Give back what the answer holds."""


class ProcessRequest(Protocol):
    """What is asked of a process; it is pickled on its way."""

    def open(self, worker: Worker) -> ProcessAnswer:
        """Return the answer, of which its head is known. Raises SqlStreamError."""


@dataclass(frozen=True, slots=True)
class NextPart:
    """Asks for the next part of the answer that is open."""

    arguments: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """An answer of one part."""

    head: Any
    is_whole: bool = True

    def part(self, *arguments: Any) -> Any:
        raise AssertionError("there are no more parts")

    def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class ComputationCall:
    """Asks for what a function of the server returns: it is called in the process.

    Errors call it by its `noun`. It may have `more_memory` than a query; then the process is not used again.
    """

    noun: str
    function: Callable[..., Any]
    arguments: Sequence[Any]
    more_memory: int = 0

    def open(self, worker: Worker) -> WholeAnswer:
        """Return what the function does. Raises what it raises."""
        return WholeAnswer(self.function(*self.arguments))


@dataclass(frozen=True, slots=True)
class ProcessReply:
    """What a process says: a value or an error, whether the answer is over with it, and the condition of the process."""

    value: Any = None
    error: Exception | None = None
    is_last: bool = True
    condition: Condition = Condition.FINE
