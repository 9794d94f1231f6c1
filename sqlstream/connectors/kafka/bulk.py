"""Produces many messages in one call, by functions of librdkafka that confluent-kafka does not call.

`rd_kafka_produce_batch` takes an array of addresses and copies their bytes. So values go from Arrow's memory into the queue of
the client, and none becomes an object of Python. Messages have neither timestamps nor headers. All functions are in librdkafka's
public interface, in the library that confluent-kafka has loaded.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

# rd_kafka_message_t
_MESSAGE = np.dtype(
    [
        ("error", np.int32),
        ("topic", np.uintp),
        ("partition", np.int32),
        ("value", np.uintp),
        ("value_length", np.uintp),
        ("key", np.uintp),
        ("key_length", np.uintp),
        ("offset", np.int64),
        ("private", np.uintp),
    ],
    align=True,
)
_PRODUCER = 0
# RD_KAFKA_MSG_F_COPY and RD_KAFKA_MSG_F_PARTITION: each message has its own partition.
_COPY, _OWN_PARTITION = 0x2, 0x8
_ANY_PARTITION = -1
# RD_KAFKA_PURGE_F_QUEUE, RD_KAFKA_PURGE_F_INFLIGHT and RD_KAFKA_PURGE_F_NON_BLOCKING
_PURGE_ALL = 0x1 | 0x2 | 0x4
_CONF_OK = 0
# RD_KAFKA_EVENT_DR and RD_KAFKA_EVENT_ERROR
_DELIVERY, _TROUBLE = 0x1, 0x8
# The longest wait of one call. Between calls, Python handles signals, and the producer handles failed messages.
_STEP_SECONDS = 0.1
# Prefixes of settings that confluent-kafka itself handles: plugins that it contains, and tokens of AWS.
_OF_PYTHON = ("plugin.", "sasl.oauthbearer.")
# The address of an empty value: the address 0 means NULL.
_EMPTY = pa.py_buffer(b"\0")

_handle, _int, _text, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
# The type of the result of each function, and of its arguments.
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "rd_kafka_conf_new": (_handle,),
    "rd_kafka_conf_destroy": (None, _handle),
    "rd_kafka_conf_set": (_int, _handle, _text, _text, _text, _size),
    "rd_kafka_conf_set_log_cb": (None, _handle, _handle),
    "rd_kafka_conf_set_events": (None, _handle, _int),
    "rd_kafka_new": (_handle, _int, _handle, _text, _size),
    "rd_kafka_topic_new": (_handle, _handle, _text, _handle),
    "rd_kafka_produce_batch": (_int, _handle, ctypes.c_int32, _int, _handle, _int),
    "rd_kafka_queue_get_main": (_handle, _handle),
    "rd_kafka_queue_poll": (_handle, _handle, _int),
    "rd_kafka_queue_destroy": (None, _handle),
    "rd_kafka_event_type": (_int, _handle),
    "rd_kafka_event_error": (_int, _handle),
    "rd_kafka_event_error_string": (_text, _handle),
    "rd_kafka_event_message_next": (_handle, _handle),
    "rd_kafka_event_destroy": (None, _handle),
    "rd_kafka_flush": (_int, _handle, _int),
    "rd_kafka_outq_len": (_int, _handle),
    "rd_kafka_purge": (_int, _handle, _int),
    "rd_kafka_topic_destroy": (None, _handle),
    "rd_kafka_destroy": (None, _handle),
}


@cache
def library() -> Any:
    """Return the librdkafka that confluent-kafka has loaded; None if the system hides its functions."""
    import confluent_kafka.cimpl

    try:
        librdkafka = ctypes.CDLL(confluent_kafka.cimpl.__file__)
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(librdkafka, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return librdkafka


def takes(settings: Mapping[str, Any]) -> bool:
    """Whether a BulkProducer can replace confluent-kafka's producer: it has no plugins and no OAuth."""
    return library() is not None and not any(name.startswith(_OF_PYTHON) for name in settings)


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """Messages as an array of `rd_kafka_message_t`, and the Arrow arrays, `held`, that own the bytes of keys and values."""

    messages: np.ndarray
    held: tuple[pa.Array, ...]

    @classmethod
    def of(cls, keys: pa.Array, values: pa.Array, partitions: np.ndarray) -> MessageBlock:
        """Return a message per row; keys and values are texts, bytes, or NULL. Partition -1 lets the client choose."""
        held = (keys.cast(pa.large_binary()), values.cast(pa.large_binary()))
        messages = np.zeros(len(values), _MESSAGE)
        messages["partition"] = partitions
        for name, column in zip(("key", "value"), held, strict=True):
            messages[name], messages[f"{name}_length"] = _addresses(column)
        return cls(messages, held)

    def __len__(self) -> int:
        return len(self.messages)

    def refused(self) -> MessageBlock:
        """Return the messages that the client did not accept, in their order."""
        return MessageBlock(self.messages[self.messages["error"] != 0], self.held)

    @property
    def error(self) -> int:
        """The error code of the first message."""
        return int(self.messages["error"][0])


def _addresses(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the addresses and the lengths of the values of a large_binary array; the address of NULL is 0."""
    _, offsets, data = column.buffers()
    if not len(column) or column.null_count == len(column):
        return np.zeros(len(column), np.uintp), np.zeros(len(column), np.uintp)
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    begin = data.address if data is not None and data.size else _EMPTY.address
    addresses, lengths = (ends[:-1] + begin).astype(np.uintp), np.diff(ends).astype(np.uintp)
    if column.null_count:
        addresses[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return addresses, lengths


class BulkProducer:
    """A producer for one topic, with the settings of confluent-kafka's.

    `poll` and `flush` call the callbacks `error_cb` and `on_delivery`, the latter only for messages that could not be delivered.
    C code does not call them, as it would drop exceptions that Python raises meanwhile, such as KeyboardInterrupt. The
    constructor raises KafkaException if librdkafka refuses the settings or the topic. A closed producer accepts no messages, and
    calls nothing.
    """

    def __init__(self, topic: str, settings: Mapping[str, Any]):
        import confluent_kafka

        self._kafka, self._library = confluent_kafka, library()
        self._hear: Callable[[Any], None] = settings["error_cb"]
        self._deliver: Callable[[Any, Any], None] = settings["on_delivery"]
        self._client = self._open({name: value for name, value in settings.items() if not callable(value)})
        self._topic = self._library.rd_kafka_topic_new(self._client, topic.encode(), None)
        if not self._topic:
            self._library.rd_kafka_destroy(self._client)
            error = self._error(confluent_kafka.KafkaError._INVALID_ARG, f'librdkafka refuses the topic "{topic}"')
            raise confluent_kafka.KafkaException(error)
        self._events = self._library.rd_kafka_queue_get_main(self._client)

    def _error(self, code: int, text: str = "") -> Any:
        return self._kafka.KafkaError(code, text) if text else self._kafka.KafkaError(code)

    def _open(self, settings: Mapping[str, Any]) -> int:
        text = ctypes.create_string_buffer(512)
        conf = self._library.rd_kafka_conf_new()
        try:
            for name, value in {**settings, "delivery.report.only.error": True}.items():
                value_text = str(value).lower() if isinstance(value, bool) else str(value)
                done = self._library.rd_kafka_conf_set(conf, name.encode(), value_text.encode(), text, len(text))
                if done != _CONF_OK:
                    raise self._invalid(text)
            self._library.rd_kafka_conf_set_log_cb(conf, None)
            self._library.rd_kafka_conf_set_events(conf, _DELIVERY | _TROUBLE)
            client = self._library.rd_kafka_new(_PRODUCER, conf, text, len(text))
            if not client:
                raise self._invalid(text)
        except BaseException:
            self._library.rd_kafka_conf_destroy(conf)
            raise
        # The settings belong to the client now.
        return int(client)

    def _invalid(self, text: Any) -> Exception:
        error = self._error(self._kafka.KafkaError._INVALID_ARG, text.value.decode(errors="replace"))
        exception: Exception = self._kafka.KafkaException(error)
        return exception

    def produce(self, rows: MessageBlock) -> MessageBlock:
        """Put messages into the client's queue; return the ones that it did not accept, with their error codes."""
        if not self._client:
            rows.messages["error"] = self._kafka.KafkaError._STATE
            return rows
        rows.messages["error"] = 0
        flags = _COPY | _OWN_PARTITION
        count = self._library.rd_kafka_produce_batch(
            self._topic, _ANY_PARTITION, flags, rows.messages.ctypes.data, len(rows)
        )
        return MessageBlock(rows.messages[:0], ()) if count == len(rows) else rows.refused()

    def error(self, rows: MessageBlock) -> Any:
        """Return the KafkaError of the first of some messages."""
        return self._error(rows.error)

    def poll(self, seconds: float) -> None:
        """Wait at most `seconds` for events, and call the callbacks of all events that have come."""
        while self._client and (event := self._library.rd_kafka_queue_poll(self._events, int(seconds * 1000))):
            try:
                self._tell(event)
            finally:
                self._library.rd_kafka_event_destroy(event)
            seconds = 0.0

    def _tell(self, event: int) -> None:
        kind = self._library.rd_kafka_event_type(event)
        if kind == _TROUBLE:
            text = self._library.rd_kafka_event_error_string(event) or b""
            self._hear(self._error(self._library.rd_kafka_event_error(event), text.decode(errors="replace")))
        while kind == _DELIVERY and (message := self._library.rd_kafka_event_message_next(event)):
            # The error is the first field of a message.
            if code := ctypes.c_int32.from_address(message).value:
                self._deliver(self._error(code), None)

    def flush(self, seconds: float) -> int:
        """Wait until the brokers have all messages, at most `seconds`; return how many messages still wait."""
        end = time.monotonic() + seconds
        while self._client:
            remaining = max(end - time.monotonic(), 0.0)
            self._library.rd_kafka_flush(self._client, int(min(remaining, _STEP_SECONDS) * 1000))
            self.poll(0.0)
            waiting = int(self._library.rd_kafka_outq_len(self._client))
            if not waiting or not remaining:
                return waiting
        return 0

    def close(self) -> None:
        """Drop the messages that were not sent, and close the connections."""
        client, self._client = self._client, 0
        if client:
            self._library.rd_kafka_purge(client, _PURGE_ALL)
            self._library.rd_kafka_queue_destroy(self._events)
            self._library.rd_kafka_topic_destroy(self._topic)
            self._library.rd_kafka_destroy(client)
