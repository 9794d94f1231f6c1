"""What runs jobs: Spark, or this process alone. Sessions know engines by what is declared here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlstream.errors import SqlStreamError
from sqlstream.runtime.commits import Totals
from sqlstream.runtime.worker import JobSpec
from sqlstream.units import Duration


class Receiver(Protocol):
    """What takes the rows of a sink in the process that runs the job.

    Once one with a `limit` `is_full`, the job ends. Once one `is_gone`, nobody reads it any more, and the job is stopped.
    """

    @property
    def limit(self) -> int | None: ...

    @property
    def is_full(self) -> bool: ...

    @property
    def is_gone(self) -> bool: ...

    def receive(self, files: Sequence[str], /) -> None: ...


# By the sink's place in the plan. The rows of other sinks go where their tables say.
Receivers = Mapping[int, Receiver]


@dataclass(frozen=True, slots=True)
class Pace:
    """How a job is driven: whether it ends with its input, and the least time between the starts of two batches."""

    finish: bool
    interval: Duration


@dataclass(frozen=True, slots=True)
class Layout:
    """How a job is spread: so many tasks, and the label of each bucket of its state."""

    partitions: int
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resources:
    """What a job asks of an engine before it starts: tasks at a time, and settings of the engine's own.

    `name` is that of the job, by which others who see the engine may know it.
    """

    parallelism: int
    conf: Mapping[str, str]
    name: str = "sqlstream"


class Run(Protocol):
    """A job that an engine runs. `state` is RUNNING or RESTARTING, then FINISHED, DRAINED, STOPPED or FAILED with `error`.

    Its status says so to others. Of `untold` errors it says nothing: whoever has started it says whether it starts again.
    """

    untold: tuple[type[SqlStreamError], ...]

    @property
    def state(self) -> str: ...

    @property
    def error(self) -> SqlStreamError | None: ...

    @property
    def cause(self) -> BaseException | None:
        """What Spark or Python raised, for debugging."""

    @property
    def totals(self) -> Totals:
        """What it has done up to its last batch."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has read all there is, and waits for more."""

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""

    def start(self) -> None:
        """Begin; returns at once where the job goes on by itself."""

    def request_stop(self, *, drain: bool = False) -> None:
        """Ask it to stop after the batch that is running, with `drain` when it has closed all windows."""

    def take_warnings(self) -> list[str]:
        """Return the warnings that nobody has taken yet."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, or so many seconds."""

    def is_alive(self) -> bool:
        """Tell whether it has begun and not ended."""


class Engine(Protocol):
    """Runs jobs of one session. With `can_run_again` a job that has failed may be run once more."""

    can_run_again: bool

    def layout(self, partitions: int) -> Layout:
        """Return how a new job with so many tasks is spread."""

    def prepare(self, resources: Resources) -> None:
        """Make ready what a job needs, once for all jobs. Raises UsageError when the machine lacks something."""

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> Run:
        """Return a job, ready to start."""

    def close(self) -> None:
        """Give back what the engine holds; no job runs any more."""


def hand_on(receivers: Receivers, run: Run, sink: int, files: Sequence[str]) -> None:
    """Give the rows of a batch, in Parquet files, to the receiver of a sink; stop the job when nobody reads them."""
    if (receiver := receivers.get(sink)) is not None:
        receiver.receive(files)
        if receiver.is_gone:
            run.request_stop()


def have_enough(receivers: Receivers) -> bool:
    """Tell whether a job has given all rows that it was to give."""
    return any(receiver.limit is not None and receiver.is_full for receiver in receivers.values())
