"""What the driver asks a cluster: partitions, their offsets, and the committed offsets of consumer groups."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from typing import Any, TypeAlias

from sqlstream.catalog import Table
from sqlstream.connectors.kafka import encryption
from sqlstream.connectors.kafka.client import check_files, client_library, reason, settings
from sqlstream.connectors.kafka.ranges import TopicPartition
from sqlstream.errors import UsageError, missing

# How long brokers may take to answer. It is short, as the user waits for the error at the start of a job.
ANSWER_SECONDS = 6.0
# How often to check, while waiting, whether brokers refuse the login.
_LOOK_SECONDS = 0.1
# The offset for a time after the last message of a partition.
_NONE = -1

Answers: TypeAlias = "Mapping[TopicPartition, Future[Any]]"


class BrokersUnavailable(Exception):
    """Brokers did not answer, or cannot answer now; a later attempt may succeed."""


class Cluster:
    """The cluster of a table. Methods wait for the brokers' answer, about ANSWER_SECONDS at most.

    They raise Unanswered if none comes, and UsageError if brokers refuse the access or do not have the topic.
    """

    def __init__(self, table: Table):
        self.table = table
        self._kafka = client_library(table)
        from confluent_kafka import admin

        self._api: Any = admin
        own: dict[str, Any] = {"client.id": "sqlstream", "log_level": 0, "error_cb": self._hear}
        check_files(table)
        table_settings = settings(table)
        table_settings.pop("group.id", None)
        self._is_committed = table_settings.get("isolation.level", "read_committed") == "read_committed"
        self._trouble: deque[str] = deque(maxlen=1)
        # The error of a broker that refuses the login: it does not answer any request, which then times out.
        self._refusal = ""
        self._admin = admin.AdminClient({**own, **table_settings, **own})

    def _hear(self, error: Any) -> None:
        if error.code() != self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._trouble.append(reason(error))
        elif self._trouble and encryption.is_distrust(self._trouble[-1]):
            self._refusal = self._trouble[-1]
        if error.code() in (self._kafka.KafkaError._AUTHENTICATION, self._kafka.KafkaError.SASL_AUTHENTICATION_FAILED):
            self._refusal = reason(error)

    def _check_login(self) -> None:
        """Raise UsageError if brokers have refused the login, or one side does not trust the other's certificate."""
        self._admin.poll(0)
        if self._refusal:
            raise self._refused(self._refusal)

    def _refused(self, text: str) -> UsageError:
        distrust = encryption.distrust(self.table, text, settings(self.table))
        return distrust or UsageError(
            f'table "{self.table.name}": Kafka refuses the access', self.table.span, detail=text or None
        )

    @property
    def trouble(self) -> str:
        """The last error of a connection, "" if there was none."""
        self._admin.poll(0)
        return self._trouble[-1] if self._trouble else ""

    # -- topics

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of the table's topics, sorted. Raises UsageError for a topic that does not exist."""
        names = self._matching() if "topic-pattern" in self.table.options else topics(self.table)
        if not names:
            return []
        answers = self._admin.describe_topics(self._kafka.TopicCollection(names), request_timeout=ANSWER_SECONDS)
        partitions = []
        for name, answer in answers.items():
            description = self._answer(answer, name)
            partitions += [TopicPartition(name, p.id) for p in description.partitions]
        return sorted(partitions)

    def _matching(self) -> list[str]:
        pattern = re.compile(self.table.options["topic-pattern"])
        return [name for name in self._topics() if pattern.fullmatch(name)]

    def _topics(self) -> list[str]:
        try:
            topic_names = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        except self._kafka.KafkaException as error:
            self._check_login()
            raise BrokersUnavailable(reason(error)) from None
        return sorted(name for name in topic_names if not name.startswith("__"))

    # -- offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(dict.fromkeys(partitions, self._api.OffsetSpec.earliest()))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset behind the last readable message of each partition (with `read_committed`: the last stable one)."""
        return self._offsets(dict.fromkeys(partitions, self._api.OffsetSpec.latest()))

    def from_millis_on(self, partitions: Sequence[TopicPartition], millis: int) -> dict[TopicPartition, int]:
        """Return the first offset in each partition at or after a time, in ms since 1970; the end, if there is none."""
        offsets = self._offsets(dict.fromkeys(partitions, self._api.OffsetSpec.for_timestamp(millis)))
        later = [p for p, offset in offsets.items() if offset == _NONE]
        return offsets | self.latest(later)

    def ask_latest(self, partitions: Iterable[TopicPartition]) -> Answers:
        """Request the offsets of `latest`, without waiting for the answers."""
        return self._ask(dict.fromkeys(partitions, self._api.OffsetSpec.latest()))

    def answered(self, answers: Answers) -> dict[TopicPartition, int]:
        """Wait for answers, and return their offsets."""
        return {p: self._answer(answer, p.topic).offset for p, answer in answers.items()}

    def _offsets(self, specs: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        return self.answered(self._ask(specs))

    def _ask(self, specs: Mapping[TopicPartition, Any]) -> Answers:
        if not specs:
            return {}
        levels = self._kafka.IsolationLevel
        level = levels.READ_COMMITTED if self._is_committed else levels.READ_UNCOMMITTED
        answers = self._admin.list_offsets(
            {self._kafka.TopicPartition(*p): spec for p, spec in specs.items()},
            isolation_level=level,
            request_timeout=ANSWER_SECONDS,
        )
        return {TopicPartition(p.topic, p.partition): answer for p, answer in answers.items()}

    # -- consumer groups

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of a consumer group; partitions without one are left out."""
        topic_partitions = [self._kafka.TopicPartition(*p) for p in partitions]
        request = self._kafka.ConsumerGroupTopicPartitions(group, topic_partitions)
        [answer] = self._admin.list_consumer_group_offsets([request], request_timeout=ANSWER_SECONDS).values()
        offsets = self._answer(answer, group).topic_partitions
        return {TopicPartition(p.topic, p.partition): p.offset for p in offsets if p.offset >= 0}

    def publish(self, group: str, offsets: Mapping[TopicPartition, int]) -> Future[Any]:
        """Commit offsets of a consumer group; return a future, without waiting."""
        topic_partitions = [self._kafka.TopicPartition(*p, offset) for p, offset in offsets.items()]
        request = self._kafka.ConsumerGroupTopicPartitions(group, topic_partitions)
        answers = self._admin.alter_consumer_group_offsets([request], request_timeout=ANSWER_SECONDS)
        return next(iter(answers.values()))

    # -- answers

    def _answer(self, answer: Future[Any], name: str) -> Any:
        """Wait for an answer and return it. Raises BrokersUnavailable if a later attempt may succeed."""
        deadline = time.monotonic() + ANSWER_SECONDS + 1
        while True:
            try:
                result = answer.result(_LOOK_SECONDS)
                self._refusal = ""
                return result
            except Late:
                self._check_login()
                if time.monotonic() > deadline:
                    raise BrokersUnavailable(self.trouble or "no answer") from None
            except self._kafka.KafkaException as error:
                self._check_login()
                raise self._explained(error, name) from None

    def _explained(self, error: Any, name: str) -> Exception:
        codes, kafka_error = self._kafka.KafkaError, error.args[0]
        options = "topic" if "topic" in self.table.options else "topic-pattern"
        if kafka_error.code() == codes.UNKNOWN_TOPIC_OR_PART:
            at = self.table.option_span(options, value=True)
            hint = missing("topic", name, self._topics()) or "Create it first: sqlstream makes no topics."
            return UsageError(f'table "{self.table.name}": topic "{name}" does not exist', at, hint=hint)
        refused = (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED, codes._SSL)
        unauthorized = (codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED)
        if kafka_error.code() in (*refused, *unauthorized, codes.CLUSTER_AUTHORIZATION_FAILED):
            return self._refused(reason(error))
        return BrokersUnavailable(self.trouble or reason(error))


def topics(table: Table) -> list[str]:
    """Return the topics in a table's option `topic`, each once."""
    return list(dict.fromkeys(name.strip() for name in table.options.get("topic", "").split(";") if name.strip()))
