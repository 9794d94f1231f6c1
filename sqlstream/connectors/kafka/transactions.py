"""Writes batches into a topic exactly once: a batch's rows and the job's progress are in one transaction.

The progress is the offset of a consumer group, so it is committed with the rows or not at all. A new client first takes over the
transactional id: the broker ends the transaction of the previous client and, if that still runs, locks it out (fencing). Only
then the new client reads the progress. After any error a client is replaced by a new one, in this way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

from sqlstream.connectors.kafka.client import settings
from sqlstream.connectors.kafka.producing import BrokenClient, Deadline, Sender, Topic
from sqlstream.connectors.kafka.progress import TopicProgress
from sqlstream.errors import JobError

if TYPE_CHECKING:
    import pyarrow as pa

TIMEOUT = "transaction.timeout.ms"
_DEFAULT_TIMEOUT = 60_000
# After this share of the transaction's timeout, the brokers may have aborted it.
_NEARLY = 0.9
# The seconds beyond its timeout for which a call is waited for.
_SLACK = 2.0
# Clients that are still in a call; the process does not wait for them when it ends.
_abandoned: list[Any] = []


def _answered(call: Callable[..., Any], arguments: Sequence[Any], seconds: float) -> None:
    """Call a client in a thread, and raise Broken if the call does not return within `seconds`, whatever its own timeout.

    librdkafka's `send_offsets_to_transaction` does not return if the coordinator of the transaction disappears at the wrong
    moment. If it returns later, that has no effect, as the next client has locked it out.
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
        raise BrokenClient("the client does not answer", silent=True) from None
    if error is not None:
        raise error


class TopicTransactions:
    """Writes batches with one `transactional_id`, which is also the id of the consumer group with the progress."""

    def __init__(self, topic: Topic, transactional_id: str, progress: TopicProgress):
        self._topic, self._transactional_id, self._progress = topic, transactional_id, progress
        timeout = settings(topic.table).get(TIMEOUT)
        self._timeout = float(timeout or _DEFAULT_TIMEOUT) / 1000
        self._sender: Sender | None = None
        self._group: Any = None

    def open(self) -> None:
        """Take over the transactional id, and look up the last committed batch. Raises JobError, OutageError or UsageError."""
        deadline = self._topic.deadline()
        self._progress.resume(self._connect(deadline))

    def write(self, batch: int, messages: Callable[[], pa.Table]) -> None:
        """Write the messages of a batch in a transaction, unless the batch is committed; `messages` computes them.

        Raises OutageError after `sink.retry-timeout`, and JobError if another process has the transactional id, or transactions
        take longer than the brokers allow.
        """
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
            except BrokenClient as error:
                self._give_up(error)
                expired = not error.silent and time.monotonic() - began > self._timeout * _NEARLY
                # If a broker was away meanwhile, the transaction itself was not too slow.
                slow += expired and not self._topic.trouble
                if error.fenced and not expired:
                    raise self.taken_over() from None
                if slow > 1:
                    raise self._too_slow(batch) from None
                if deadline.is_over:
                    raise self._topic.unanswered(str(error)) from None
                self._progress.confirm(self._connect(deadline))
        self._progress.done(batch)

    def _give_up(self, error: BrokenClient) -> None:
        """Handle the last events of a broken client; abandon one that does not answer, as closing it would wait for ever."""
        if error.silent:
            _abandoned.append(self._sender)
            self._sender = None
        elif self._sender is not None:
            with contextlib.suppress(BrokenClient):
                self._sender.poll()

    def _transact(self, batch: int, messages: pa.Table, deadline: Deadline) -> None:
        sender = self._sender
        if sender is None:
            raise BrokenClient("no client")
        producer = sender.producer
        self._ask(producer.begin_transaction)
        sender.send(messages, deadline)
        topic_partition = self._topic.kafka.TopicPartition(self._topic.name, 0, batch)
        self._ask(producer.send_offsets_to_transaction, [topic_partition], self._group, deadline=deadline)
        self._ask(producer.commit_transaction, deadline=deadline)

    def _ask(
        self, call: Callable[..., Any], *arguments: Any, deadline: Deadline | None = None, sender: Sender | None = None
    ) -> None:
        """Call the client, and retry if its error is retriable. Raises BrokenClient if a new client is needed."""
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
                    # The error of a message tells more.
                    sender.poll()
                    sender.check()
                self._topic.check_login()
                self._topic.refuse(error)
                if not error.retriable() or deadline is None or deadline.is_over:
                    raise broken from None

    def _connect(self, deadline: Deadline) -> int | None:
        """Replace the client by a new one, and return the last batch in the cluster; None if it has no offset of the group."""
        while True:
            self.close()
            try:
                more = {"transactional.id": self._transactional_id, TIMEOUT: int(self._timeout * 1000)}
                sender = Sender(self._topic, more)
                self._ask(sender.producer.init_transactions, deadline=deadline, sender=sender)
                marker = self._marker(deadline)
                self._sender = sender
                return marker
            except BrokenClient as error:
                if deadline.is_over:
                    raise self.taken_over() if error.fenced else self._topic.unanswered(str(error)) from None
                time.sleep(0.05)

    def _marker(self, deadline: Deadline) -> int | None:
        """Return the committed offset of the job's consumer group, the number of a batch; None if the group has none.

        The previous client's last transaction may just have committed it.
        """
        own = {"group.id": self._transactional_id, "enable.auto.commit": False, "isolation.level": "read_committed"}
        table_settings = {k: v for k, v in settings(self._topic.table).items() if k != TIMEOUT}
        consumer = self._topic.kafka.Consumer({**table_settings, **own, **self._topic.client_settings()})
        offsets: list[Any] = []

        def ask(timeout: float) -> None:
            topic_partition = self._topic.kafka.TopicPartition(self._topic.name, 0)
            [answer] = consumer.committed([topic_partition], timeout=timeout)
            if answer.error is not None:
                raise self._topic.kafka.KafkaException(answer.error)
            offsets.append(answer.offset)

        try:
            self._ask(ask, deadline=deadline)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        return offsets[0] if offsets[0] >= 0 else None

    def taken_over(self) -> JobError:
        """Return the error for a job whose transactional id another process has taken over."""
        table = self._topic.table
        return JobError(
            f'table "{table.name}": another process writes into topic "{self._topic.name}" with the transactional id of this job',
            table.span,
            detail=f"The id is {self._transactional_id}. This process has written nothing since the other one began.",
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
        """Close the client. One that does not answer was abandoned, and keeps its thread."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
