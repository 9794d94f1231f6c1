"""The protocols of engines, which run jobs on Spark, or in this process alone. Sessions use engines through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlstream.errors import SqlStreamError
from sqlstream.runtime.commits import Totals
from sqlstream.runtime.labels import spread_labels
from sqlstream.runtime.worker import JobSpec
from sqlstream.units import Duration


class Receiver(Protocol):
    """Receives the rows of a sink in the process that runs the job."""

    @property
    def limit(self) -> int | None:
        """The number of rows after which the job ends, None if there is no limit."""

    @property
    def is_full(self) -> bool:
        """Whether it needs no more rows. If it has a `limit`, too, the job ends."""

    @property
    def is_gone(self) -> bool:
        """Whether its reader has closed it: the job is stopped."""

    def receive(self, files: Sequence[str], /) -> None:
        """Receive the rows of a batch in local Parquet files, which may be deleted after the call."""


# By the sink's index in the plan. The rows of other sinks go where their tables say.
Receivers = Mapping[int, Receiver]


@dataclass(frozen=True, slots=True)
class Pace:
    """How a job is driven: whether it ends with its bounded input, and the least time between the starts of two batches."""

    finish: bool
    interval: Duration


@dataclass(frozen=True, slots=True)
class Layout:
    """The parallelism of a job: its number of tasks, and the label of each bucket of its state."""

    partitions: int
    labels: tuple[int, ...]

    @classmethod
    def of(cls, partitions: int) -> Layout:
        """Return the layout of a new job: a bucket for each task, on all engines, so that a job can go from one to another."""
        return cls(partitions, spread_labels(partitions, partitions))


@dataclass(frozen=True, slots=True)
class Resources:
    """The requirements of a job on its engine: how many tasks run at a time, and settings.

    `name` is the name of the job, under which the engine may show it.
    """

    parallelism: int
    conf: Mapping[str, str]
    name: str = "sqlstream"


class Run(Protocol):
    """A job that an engine runs. `state` is RUNNING or RESTARTING, then FINISHED, DRAINED, STOPPED or FAILED with `error`.

    The run writes its state into the job's status, except after an error of a class in `untold`: then the caller, which may run
    the job again, writes the status.
    """

    untold: tuple[type[SqlStreamError], ...]

    @property
    def engine(self) -> str:
        """The name of the engine, as in the option `execution.engine`."""

    @property
    def state(self) -> str: ...

    @property
    def error(self) -> SqlStreamError | None: ...

    @property
    def cause(self) -> BaseException | None:
        """The exception of Spark or Python behind `error`, for debugging."""

    @property
    def totals(self) -> Totals:
        """The metrics of the job up to its last batch."""

    @property
    def is_waiting(self) -> bool:
        """Whether the job has read all input that there is, and waits for more."""

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""

    def start(self) -> None:
        """Start the job; return at once if it runs in a thread."""

    def request_stop(self, *, drain: bool = False) -> None:
        """Request a stop after the running batch; with `drain`, end the input instead, and stop when all windows are closed."""

    def take_warnings(self) -> list[str]:
        """Return the pending warnings, and remove them."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the job, at most `timeout` seconds."""

    def is_alive(self) -> bool:
        """Whether the job has started and has not ended."""


class Engine(Protocol):
    """Runs the jobs of a session. `can_run_again` says whether a job that has failed may be run again."""

    can_run_again: bool

    def layout(self, partitions: int) -> Layout:
        """Return the layout of a new job, for a number of tasks."""

    def prepare(self, resources: Resources) -> None:
        """Start what jobs need, once for all jobs. Raises UsageError if the machine lacks something."""

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> Run:
        """Return a run of a job that has not started yet."""

    def close(self) -> None:
        """Release the resources of the engine, when no job runs any more."""


def hand_on(receivers: Receivers, run: Run, sink: int, files: Sequence[str]) -> None:
    """Pass the rows of a batch, in Parquet files, to the receiver of a sink, if there is one; stop the job if it is gone."""
    if (receiver := receivers.get(sink)) is not None:
        receiver.receive(files)
        if receiver.is_gone:
            run.request_stop()


def have_enough(receivers: Receivers) -> bool:
    """Whether a receiver with a limit is full, so that the job may end."""
    return any(receiver.limit is not None and receiver.is_full for receiver in receivers.values())
