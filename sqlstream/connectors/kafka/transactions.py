"""Batches into a topic exactly once: the rows of a batch, and the job's progress, in one transaction.

The progress is the offset of a consumer group, so a batch and the word that it is in are committed together or not at all.
A client that starts takes over the transactional id first: what its predecessor has begun is ended, and a predecessor that still
lives is locked out. Only then it asks for the progress. A client that meets any trouble is given up, and the next one starts so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

from sqlstream.connectors.kafka.client import settings
from sqlstream.connectors.kafka.producing import Broken, Deadline, Sender, Topic
from sqlstream.connectors.kafka.progress import TopicProgress
from sqlstream.errors import JobError

if TYPE_CHECKING:
    import pyarrow as pa

TIMEOUT = "transaction.timeout.ms"
_DEFAULT_TIMEOUT = 60_000
# A transaction that was that long on the way may have been ended by the brokers.
_NEARLY = 0.9
# How much longer than it may take a call of the client is waited for, in seconds.
_SLACK = 2.0
# Clients that are still in a call; the end of a process does not wait for them.
_abandoned: list[Any] = []


def _answered(call: Callable[..., Any], arguments: Sequence[Any], seconds: float) -> None:
    """Call a client that may never answer, whatever timeout it is given. Raises Broken then.

    librdkafka's `send_offsets_to_transaction` does not come back when the broker that coordinates the transaction is gone at the
    wrong moment. What it does later is without effect: the next client has locked it out.
    """
    outcome: Queue[BaseException | None] = Queue()

    def run() -> None:
        try:
            call(*arguments)
            outcome.put(None)
        except BaseException as error:
            outcome.put(error)

    Thread(target=run, daemon=True, name="kafka transaction").start()
    try:
        error = outcome.get(timeout=seconds)
    except Empty:
        raise Broken("the client does not answer", silent=True) from None
    if error is not None:
        raise error


class TopicTransactions:
    """Writes batches with one transactional id, by which the group with the progress is called, too."""

    def __init__(self, topic: Topic, identity: str, progress: TopicProgress):
        self._topic, self._identity, self._progress = topic, identity, progress
        given = settings(topic.table).get(TIMEOUT)
        self._timeout = float(given or _DEFAULT_TIMEOUT) / 1000
        self._sender: Sender | None = None
        self._group: Any = None

    def open(self) -> None:
        """Take over the transactional id, and find out which batches are in."""
        deadline = self._topic.deadline()
        self._progress.resume(self._connect(deadline))

    def write(self, batch: int, messages: Callable[[], pa.Table]) -> None:
        """Write the messages of a batch, unless they are in."""
        if batch <= self._progress.last:
            return
        deadline, table = self._topic.deadline(), messages()
        self._progress.intend(batch)
        slow = 0
        while batch > self._progress.last:
            began = time.monotonic()
            self._topic.trouble.clear()
            try:
                self._transact(batch, table, deadline)
                break
            except Broken as error:
                self._give_up(error)
                expired = not error.silent and time.monotonic() - began > self._timeout * _NEARLY
                # Where a broker was away meanwhile, it was not the transaction that took so long.
                slow += expired and not self._topic.trouble
                if error.fenced and not expired:
                    raise self.taken_over() from None
                if slow > 1:
                    raise self._too_slow(batch) from None
                if deadline.is_over:
                    raise self._topic.unanswered(str(error)) from None
                self._progress.confirm(self._connect(deadline))
        self._progress.done(batch)

    def _give_up(self, error: Broken) -> None:
        """Hear what else a client says that is broken, or let go of one that does not answer: to close it would wait for it."""
        if error.silent:
            _abandoned.append(self._sender)
            self._sender = None
        elif self._sender is not None:
            with contextlib.suppress(Broken):
                self._sender.poll()

    def _transact(self, batch: int, messages: pa.Table, deadline: Deadline) -> None:
        sender = self._sender
        if sender is None:
            raise Broken("no client")
        producer = sender.producer
        self._ask(producer.begin_transaction)
        sender.send(messages, deadline)
        place = self._topic.kafka.TopicPartition(self._topic.name, 0, batch)
        self._ask(producer.send_offsets_to_transaction, [place], self._group, deadline=deadline)
        self._ask(producer.commit_transaction, deadline=deadline)

    def _ask(
        self, call: Callable[..., Any], *arguments: Any, deadline: Deadline | None = None, sender: Sender | None = None
    ) -> None:
        """Call the client, again where it says so. Raises Broken where the transaction did not come to its end."""
        sender = sender or self._sender
        while True:
            try:
                if deadline is None:
                    call(*arguments)
                else:
                    _answered(call, [*arguments, deadline.step()], deadline.step() + _SLACK)
                return
            except self._topic.kafka.KafkaException as failure:
                error = failure.args[0]
                broken = self._topic.broken(error)
                if sender is not None and not broken.fenced:
                    # What a message met says more.
                    sender.poll()
                    sender.check()
                self._topic.check_login()
                self._topic.refuse(error)
                if not error.retriable() or deadline is None or deadline.is_over:
                    raise broken from None

    def _connect(self, deadline: Deadline) -> int | None:
        """Make a client in the place of the one before, and return the last batch that the cluster has."""
        while True:
            self.close()
            try:
                more = {"transactional.id": self._identity, TIMEOUT: int(self._timeout * 1000)}
                sender = Sender(self._topic, more)
                self._ask(sender.producer.init_transactions, deadline=deadline, sender=sender)
                marker = self._marker(deadline)
                self._sender = sender
                return marker
            except Broken as error:
                if deadline.is_over:
                    raise self.taken_over() if error.fenced else self._topic.unanswered(str(error)) from None
                time.sleep(0.05)

    def _marker(self, deadline: Deadline) -> int | None:
        """Return the offset of the group, which a transaction of ours may have committed just now."""
        own = {"group.id": self._identity, "enable.auto.commit": False, "isolation.level": "read_committed"}
        given = {k: v for k, v in settings(self._topic.table).items() if k != TIMEOUT}
        consumer = self._topic.kafka.Consumer({**given, **own, **self._topic.client_settings()})
        found: list[Any] = []

        def ask(timeout: float) -> None:
            place = self._topic.kafka.TopicPartition(self._topic.name, 0)
            [answer] = consumer.committed([place], timeout=timeout)
            if answer.error is not None:
                raise self._topic.kafka.KafkaException(answer.error)
            found.append(answer.offset)

        try:
            self._ask(ask, deadline=deadline)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        return found[0] if found[0] >= 0 else None

    def taken_over(self) -> JobError:
        """Return the error of a job whose transactional id has another process now."""
        table = self._topic.table
        return JobError(
            f'table "{table.name}": another process writes into topic "{self._topic.name}" with the transactional id of this job',
            table.span,
            detail=f"The id is {self._identity}. This process has written nothing since the other one began.",
            hint="Is the job, or a copy of its warehouse, running elsewhere? Stop one of them.",
        )

    def _too_slow(self, batch: int) -> JobError:
        table = self._topic.table
        return JobError(
            f'table "{table.name}": the transaction of batch {batch} takes longer than the brokers wait for it',
            table.span,
            detail=f"They end a transaction after {self._timeout:g} s.",
            hint=f"Raise 'properties.{TIMEOUT}', or have batches read less at a time.",
        )

    def close(self) -> None:
        """Let go of the client; one that does not answer keeps its thread."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
