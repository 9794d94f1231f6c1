"""Sending messages to a topic: the client of a sink, and the errors of brokers."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.kafka import bulk, encryption
from sqlstream.connectors.kafka.client import check_files, client_library, reason, settings
from sqlstream.connectors.kafka.messages import HEADERS, KEY, PARTITION, TIMESTAMP, VALUE
from sqlstream.connectors.kafka.sink_options import RETRY, one_topic, retry_seconds
from sqlstream.errors import JobError, OutageError, UsageError

# librdkafka's waits are made for long-lived clients: a restarted job should not wait half a second for a first answer.
_QUICK = {"retry.backoff.ms": 10, "reconnect.backoff.ms": 10, "topic.metadata.refresh.fast.interval.ms": 10}
# Keys are partitioned as by Java's clients, so that topics of both can be joined partition by partition. The flush at the end of
# a batch does not linger; before it, few large requests cost the client and the broker less than many small ones.
_DEFAULTS = {"partitioner": "murmur2_random", "linger.ms": 50, **_QUICK}
_ASK_SECONDS = 4.0
# Callbacks and exceptions report errors; librdkafka would also write them to the job's stderr.
_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
_CHUNK = 20_000
# How long a broker may take to create a topic.
_CREATE_SECONDS = 3.0


class BrokenClient(Exception):
    """A client cannot continue: a new one must replace it.

    It is `fenced` if a newer client has its transactional id, `silent` if it is still in a call, which may never return.
    """

    def __init__(self, message: str, *, fenced: bool = False, silent: bool = False):
        super().__init__(message)
        self.fenced, self.silent = fenced, silent


class Deadline:
    """A deadline, `seconds` after its creation."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """The seconds until the deadline, 0.0 when it is over."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.remaining == 0.0

    def step(self) -> float:
        """Return how many seconds to wait for one answer: from 0.1 to _ASK_SECONDS; 0.1 after the deadline, too."""
        return max(min(self.remaining, _ASK_SECONDS), 0.1)


class Topic:
    """The topic that a table is written into, and the translation of librdkafka's errors about it."""

    def __init__(self, table: Table):
        self.table, self.name = table, one_topic(table)
        self.kafka = client_library(table)
        # The last error of a connection.
        self.trouble: deque[Any] = deque(maxlen=1)
        # The error of brokers that refuse the login: requests to them time out.
        self._refusal: Any = None

    def deadline(self) -> Deadline:
        """Return a new deadline, for a batch that is tried for `sink.retry-timeout`."""
        return Deadline(retry_seconds(self.table))

    def client_settings(self) -> dict[str, Any]:
        """Return the settings that all clients of the sink have."""
        return {"client.id": "sqlstream", "log_level": 0, "logger": _SILENT, "error_cb": self._hear}

    def _hear(self, error: Any) -> None:
        if error.code() != self.kafka.KafkaError._ALL_BROKERS_DOWN:
            self.trouble.append(error)
        elif self.trouble and encryption.is_distrust(reason(self.trouble[-1])):
            self._refusal = self.trouble[-1]
        if error.code() in (self.kafka.KafkaError._AUTHENTICATION, self.kafka.KafkaError.SASL_AUTHENTICATION_FAILED):
            self._refusal = error

    def check_login(self) -> None:
        """Raise UsageError if brokers have refused the login, or one side does not trust the other's certificate."""
        self.refuse(self._refusal)

    def partitions(self, producer: Any) -> int:
        """Return the number of partitions. A broker may create the topic for this request.

        Raises UsageError if the topic does not exist or access is refused, and OutageError if no broker answers in time.
        """
        deadline = self.deadline()
        codes = self.kafka.KafkaError
        missing_since: Deadline | None = None
        while True:
            try:
                metadata = producer.list_topics(self.name, timeout=deadline.step()).topics[self.name]
                if metadata.error is None and metadata.partitions:
                    return len(metadata.partitions)
                error = metadata.error
            except self.kafka.KafkaException as failure:
                error = failure.args[0]
            # Callbacks report errors of connections.
            producer.poll(0)
            self.check_login()
            self.refuse(error)
            if error is not None and error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC):
                # While a broker creates the topic, it may say for a moment that it does not exist.
                missing_since = missing_since or Deadline(_CREATE_SECONDS)
                if missing_since.is_over:
                    raise self._missing()
            if deadline.is_over:
                raise self.unanswered(reason(error))
            time.sleep(0.05)

    def _missing(self) -> UsageError:
        message = f'table "{self.table.name}": topic "{self.name}" does not exist, and the brokers do not make it'
        hint = "Create it (kafka-topics.sh --create), or let brokers do it: auto.create.topics.enable=true."
        return UsageError(message, self.table.option_span("topic", value=True), hint=hint)

    def refuse(self, error: Any) -> None:
        """Raise UsageError or JobError if `error`, of librdkafka, is one that a retry cannot fix; do nothing otherwise."""
        if error is None:
            return
        codes, named = self.kafka.KafkaError, f'table "{self.table.name}"'
        text = reason(error)
        if (distrust := encryption.distrust(self.table, text, settings(self.table))) is not None:
            raise distrust
        if error.code() in (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED, codes._SSL):
            raise UsageError(
                f"{named}: the brokers refuse to talk to the client", self.table.span, detail=_sentence(text)
            )
        refused: Mapping[int, str] = {
            codes.TOPIC_AUTHORIZATION_FAILED: f'to write into topic "{self.name}"',
            codes.CLUSTER_AUTHORIZATION_FAILED: "to write with idempotence",
            codes.GROUP_AUTHORIZATION_FAILED: "to use the consumer group that has the job's progress",
            codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "to use the transactional id",
        }
        if error.code() in refused:
            message = f"{named}: the user is not allowed {refused[error.code()]}"
            raise UsageError(message, self.table.span, detail=_sentence(text))
        if error.code() in (codes.MSG_SIZE_TOO_LARGE, codes.INVALID_MSG_SIZE, codes.RECORD_LIST_TOO_LARGE):
            hint = "Raise 'properties.message.max.bytes', and the topic's max.message.bytes."
            message = f'{named}: a row is too large for topic "{self.name}"'
            raise JobError(message, self.table.span, detail=_sentence(text), hint=hint)
        if error.code() == codes.INVALID_TRANSACTION_TIMEOUT:
            hint = "Lower 'properties.transaction.timeout.ms', or raise the brokers' transaction.max.timeout.ms."
            raise UsageError(f"{named}: the brokers do not allow the transaction timeout", self.table.span, hint=hint)
        if error.code() in (
            codes.UNSUPPORTED_VERSION,
            codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            codes.UNSUPPORTED_SASL_MECHANISM,
            codes.INVALID_REQUIRED_ACKS,
        ):
            raise JobError(
                f"{named}: the brokers do not take what the client sends", self.table.span, detail=_sentence(text)
            )
        if error.code() in (codes.INVALID_RECORD, codes.POLICY_VIOLATION, codes.TOPIC_EXCEPTION):
            raise JobError(f'{named}: topic "{self.name}" refuses a row', self.table.span, detail=_sentence(text))

    def broken(self, error: Any) -> BrokenClient:
        """Return Broken for an error after which the client cannot continue."""
        codes = self.kafka.KafkaError
        fences = (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH)
        return BrokenClient(reason(error), fenced=error.code() in fences)

    def unanswered(self, text: str) -> OutageError:
        """Return the error about brokers that did not answer in time. Raises UsageError or JobError if they refuse the request.

        `text` is the detail, unless a connection has an error.
        """
        waited = self.table.options.get(RETRY.name, RETRY.default)
        detail = text
        if self.trouble:
            error, detail = self.trouble[-1], reason(self.trouble[-1])
            # Only callbacks report a wrong password. Other errors of a connection may be temporary.
            if error.code() != self.kafka.KafkaError._SSL or encryption.is_distrust(detail):
                self.refuse(error)
        return OutageError(
            f'table "{self.table.name}": the brokers did not take the rows of topic "{self.name}" for {waited}',
            self.table.span,
            detail=_sentence(detail),
            hint=f"The job goes on with this batch when it is started again. '{RETRY.name}' says how long it waits.",
        )


class Sender:
    """A client that sends messages. A job keeps it until it breaks."""

    def __init__(self, topic: Topic, more: Mapping[str, Any]):
        self.topic = topic
        self.failed: deque[Any] = deque(maxlen=1)
        own = {**topic.client_settings(), "delivery.report.only.error": True, "on_delivery": self._deliver}
        check_files(topic.table)
        table_settings = settings(topic.table)
        table_settings.pop("group.id", None)
        table_settings.pop("isolation.level", None)
        try:
            self.producer = self._open({**_DEFAULTS, **more, **table_settings, **own})
        except topic.kafka.KafkaException as error:
            # Each setting was accepted by itself (`check_settings`), so their combination is refused.
            message = f'table "{topic.table.name}": librdkafka refuses the properties of a client that writes'
            raise UsageError(message, topic.table.span, detail=_sentence(reason(error))) from None

    def _open(self, client_settings: Mapping[str, Any]) -> Any:
        return self.topic.kafka.Producer(client_settings)

    def _deliver(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)

    def send(self, messages: pa.Table, deadline: Deadline) -> None:
        """Put messages, with the columns of `MessageLayout.messages`, into the client's queue, which it sends in the background.

        Raises BrokenClient if a new client must send them, OutageError if the queue stays full until the deadline, and the errors
        of `Topic.refuse`.
        """
        for chunk in messages.to_batches(_CHUNK):
            self._send_some(chunk, deadline)
            self.poll()

    def _send_some(self, chunk: pa.RecordBatch, deadline: Deadline) -> None:
        keys, values = _values(chunk.column(KEY)), _values(chunk.column(VALUE))
        rows = zip(repeat(self.topic.name), values, keys, chunk.column(PARTITION).to_numpy().tolist())
        times, headers = chunk.column(TIMESTAMP), chunk.column(HEADERS)
        if headers.null_count < len(headers) or np.any(times.to_numpy()):
            for row, time_of, row_headers in zip(rows, times.to_pylist(), headers.to_pylist(), strict=True):
                # The timestamp is a keyword argument: at its position the client takes another one.
                more: dict[str, Any] = {"timestamp": time_of} if time_of else {}
                self._produce(deadline, row, more if row_headers is None else {**more, "headers": row_headers})
        else:
            self._produce_plain(deadline, rows)

    def _produce_plain(self, deadline: Deadline, rows: Iterator[tuple[Any, ...]]) -> None:
        """Produce messages that have neither timestamps nor headers, which is faster."""
        produce = self.producer.produce
        refused = (BufferError, self.topic.kafka.KafkaException)
        for row in rows:
            try:
                produce(*row)
            except refused:
                self._produce(deadline, row, {})

    def poll(self, seconds: float = 0.0) -> None:
        """Wait at most `seconds` for delivery reports and errors, and handle them. Raises BrokenClient."""
        try:
            self.producer.poll(seconds)
        except self.topic.kafka.KafkaException as error:
            raise self.topic.broken(error.args[0]) from None

    def _produce(self, deadline: Deadline, message: tuple[Any, ...], more: Mapping[str, Any]) -> None:
        kafka = self.topic.kafka
        while True:
            try:
                self.producer.produce(*message, **more)
                return
            except BufferError:
                self._wait_for_room(deadline)
            except kafka.KafkaException as error:
                self.topic.refuse(error.args[0])
                raise self.topic.broken(error.args[0]) from None

    def _wait_for_room(self, deadline: Deadline) -> None:
        """Wait a moment, as the client's queue is full. Raises OutageError if the deadline is over."""
        self.poll(0.05)
        self.check()
        if deadline.is_over:
            raise self.topic.unanswered("the queue of the client is full")

    def check(self) -> None:
        """Raise the error of a message that could not be delivered, if there is one: Broken, or an error of `Topic.refuse`."""
        if self.failed:
            error = self.failed[-1]
            self.failed.clear()
            self.topic.refuse(error)
            raise self.topic.broken(error)

    def flush(self, deadline: Deadline) -> None:
        """Wait until the brokers have all messages. Raises the errors of `check`, and OutageError after the deadline."""
        while self._waits(deadline.step()):
            self.check()
            if deadline.is_over:
                raise self.topic.unanswered("messages are still waiting")
        self.check()

    def _waits(self, seconds: float) -> bool:
        try:
            return bool(self.producer.flush(seconds))
        except self.topic.kafka.KafkaException as error:
            raise self.topic.broken(error.args[0]) from None

    def close(self) -> None:
        """Drop the messages that were not sent, and close the connections."""
        with contextlib.suppress(self.topic.kafka.KafkaException):
            self.producer.purge(in_queue=True, in_flight=True, blocking=False)
            self.producer.flush(0)


class BulkSender(Sender):
    """Sends messages without timestamps and headers, many per call; it has no transactions."""

    @staticmethod
    def is_for(table: Table) -> bool:
        """Whether the settings of a table allow this sender."""
        return bulk.takes(settings(table))

    def _open(self, client_settings: Mapping[str, Any]) -> Any:
        return bulk.BulkProducer(self.topic.name, {k: v for k, v in client_settings.items() if k != "logger"})

    def _send_some(self, chunk: pa.RecordBatch, deadline: Deadline) -> None:
        keys, values, partitions = (chunk.column(name) for name in (KEY, VALUE, PARTITION))
        rest = self.producer.produce(bulk.MessageBlock.of(keys, values, partitions.to_numpy()))
        while len(rest):
            error = self.producer.error(rest)
            if error.code() != self.topic.kafka.KafkaError._QUEUE_FULL:
                self.topic.refuse(error)
                raise self.topic.broken(error)
            self._wait_for_room(deadline)
            rest = self.producer.produce(rest)

    def close(self) -> None:
        self.producer.close()


def _values(column: pa.Array) -> Iterable[Any]:
    """Return keys or values as bytes; `to_pylist` is slower, as it makes a scalar of each first."""
    if column.null_count == len(column):
        return repeat(None, len(column))
    array = column.cast(pa.binary()) if pa.types.is_string(column.type) else column
    values: Iterable[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
