"""The driver's side of a Kafka source: which offsets of which partitions the next batch reads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.connectors.kafka import options
from sqlstream.connectors.kafka.client import GROUP, SERVERS
from sqlstream.connectors.kafka.cluster import Answers, BrokersUnavailable, Cluster
from sqlstream.connectors.kafka.options import BOUNDED, STARTUP
from sqlstream.connectors.kafka.ranges import OffsetRange, TopicPartition, shared
from sqlstream.connectors.kafka.reader import lost_offsets
from sqlstream.connectors.kafka.sizes import MessageSizes
from sqlstream.errors import OutageError, UsageError
from sqlstream.units import duration, seconds

# How long a partition may end before the position: after an outage, a broker may not know its newest messages for a moment.
_BACK_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
# How long `poll` waits for offsets: usually an answer takes some milliseconds.
_ANSWER_SECONDS = 0.25


def unreachable(table: Table, trouble: str) -> UsageError:
    """Return the error for a job that starts while no broker answers; `trouble` is the detail."""
    servers = table.options[SERVERS.name]
    message = f'table "{table.name}": no broker of Kafka answers at {servers}'
    return UsageError(message, table.option_span(SERVERS.name, value=True), detail=trouble or None)


class TopicDiscovery(Discovery):
    """Hands out new offsets of partitions; its position is an offset for each partition.

    A partition gets its start offset when the job first sees it. During an outage, `poll` counts the offsets that it learned
    before; if the outage lasts longer than `scan.outage-timeout`, `poll` raises OutageError.
    """

    backlog_unit = "offsets"

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__()
        self._table, self._position, self._context = table, position, context
        self.bounded = options.bounded_mode(table) != options.UNBOUNDED
        self.interval = None if self.bounded else options.duration_of(table, options.POLL)
        self._max_rows, self._max_bytes = options.max_rows(table), options.max_bytes(table)
        self._sizes = MessageSizes(table)
        self._group = table.options.get(GROUP)
        self._looked_at = context.clock()
        self._troubled_since: float | None = None
        self._back: dict[TopicPartition, float] = {}
        self._published: Future[Any] | None = None
        self._answers: Answers = {}
        self._cluster = Cluster(table)
        try:
            partitions = self._cluster.partitions()
            if not partitions and self.bounded:
                pattern = table.options.get("topic-pattern", "")
                raise UsageError(f'table "{table.name}": no topic matches "{pattern}"', table.span)
            self._starts = self._first_starts(partitions)
            self._ends = self._bounds(partitions) if self.bounded else self._cluster.latest(partitions)
        except BrokersUnavailable as trouble:
            # A first start has already checked that brokers answer (`check_input`): this is a restart.
            error = unreachable(table, str(trouble))
            raise OutageError(error.message, error.span, detail=error.detail) from None

    # -- where to begin and to end

    def _first_starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start offset of each partition, from the startup mode if it existed when the job first started.

        A partition that came later starts at its first offset.
        """
        mode = options.startup_mode(self._table)
        starts = self._offsets_of(STARTUP, mode, partitions)
        record = self._context.remember("start", {p.name: offset for p, offset in starts.items()})
        old_starts = {p: record[p.name] for p in partitions if p.name in record}
        new = [p for p in partitions if p not in old_starts and self._position.get(p.name) is None]
        return old_starts | self._cluster.earliest(new)

    def _bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        ends, latest = (
            self._offsets_of(BOUNDED, options.bounded_mode(self._table), partitions),
            self._cluster.latest(partitions),
        )
        named = {p.name: min(offset, latest[p]) for p, offset in ends.items()}
        record = self._context.remember("bound", named) if self._context.finish else named
        return {p: record[p.name] for p in partitions if p.name in record}

    def _offsets_of(self, group: str, mode: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset in each partition for a mode, of startup or of the bound (`group`)."""
        cluster, table_options = self._cluster, self._table.options
        match mode:
            case options.EARLIEST:
                return cluster.earliest(partitions)
            case options.LATEST:
                return cluster.latest(partitions)
            case options.TIMESTAMP:
                return cluster.from_millis_on(partitions, int(table_options[f"{group}.timestamp-millis"]))
            case options.SPECIFIC:
                offsets = options.parse_offsets(table_options[f"{group}.specific-offsets"])
                missing = sorted(offsets.keys() - {p.number for p in partitions})
                if missing:
                    at = self._table.option_span(f"{group}.specific-offsets", value=True)
                    message = (
                        f'table "{self._table.name}": topic "{table_options["topic"]}" has no partition {missing[0]}'
                    )
                    raise UsageError(message, at)
                others = cluster.earliest if group == STARTUP else cluster.latest
                rest = others([p for p in partitions if p.number not in offsets])
                return rest | {p: offsets[p.number] for p in partitions if p.number in offsets}
            case _:
                return self._of_group(group, partitions)

    def _of_group(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition in the consumer group.

        For a partition without one, `auto.offset.reset` decides where it starts, but not where it ends, as in Flink. Raises
        UsageError at the first start of a job where that is not known; later, the job remembers it.
        """
        assert self._group is not None
        committed = self._cluster.committed(self._group, partitions)
        rest = [p for p in partitions if p not in committed]
        if group == BOUNDED:
            ends, starts = self._cluster.latest(rest), self._cluster.earliest(rest)
            if not (self._context.finish and self._position.reached):
                hint = f"Let the group commit one, or set '{BOUNDED}.mode' = '{options.LATEST}' to read all messages."
                self._check_committed([p for p in rest if starts[p] < ends[p]], hint)
            return committed | ends
        reset = options.reset(self._table)
        if reset == options.LATEST:
            return committed | self._cluster.latest(rest)
        if reset == options.EARLIEST:
            return committed | self._cluster.earliest(rest)
        if not self._position.reached:
            self._check_committed(rest, f"Set '{options.RESET}' = 'earliest' or 'latest'.")
        return committed

    def _check_committed(self, rest: Sequence[TopicPartition], hint: str) -> None:
        """Raise UsageError if there are partitions without a committed offset."""
        if rest:
            message = f'table "{self._table.name}": group "{self._group}" has committed no offset of {rest[0]}'
            raise UsageError(message, self._table.option_span(GROUP, value=True), hint=hint)

    # -- what the cluster has

    def poll(self) -> int:
        """Ask for the newest offsets and, at an interval, for new partitions; return how many offsets wait.

        Raises OutageError if an outage lasts longer than `scan.outage-timeout`.
        """
        if self.bounded:
            return self.waiting
        self._answers = self._answers or self._cluster.ask_latest(self._ends)
        if wait(self._answers.values(), _ANSWER_SECONDS).not_done:
            # There may be an outage: the driver has other things to do than to wait.
            return self.waiting
        answers, self._answers = self._answers, {}
        try:
            self._ends |= self._cluster.answered(answers)
            self._look_for_partitions()
        except BrokersUnavailable as trouble:
            # With librdkafka 2.16, a client that has lost all leaders does not find them again; a new client does.
            self._cluster = Cluster(self._table)
            self._wait(str(trouble))
        else:
            self._recover()
        return self.waiting

    def _look_for_partitions(self) -> None:
        interval = seconds(options.duration_of(self._table, options.TOPICS_INTERVAL))
        now = self._context.clock()
        if interval and now - self._looked_at >= interval:
            new = [p for p in self._cluster.partitions() if p not in self._ends]
            unread = [p for p in new if self._position.get(p.name) is None and p not in self._starts]
            self._starts |= self._cluster.earliest(unread)
            self._ends |= self._cluster.latest(new)
            self._looked_at = now

    def _wait(self, trouble: str) -> None:
        """Warn when an outage begins; raise OutageError when it has lasted too long."""
        limit = options.duration_of(self._table, options.OUTAGE)
        now = self._context.clock()
        named = f'table "{self._table.name}": no broker of Kafka answers at {self._table.options[SERVERS.name]}'
        if self._troubled_since is None:
            self._troubled_since = now
            self.warnings.append(f"{named} ({trouble}); the job waits for {duration(limit)} at most")
        elif now - self._troubled_since > seconds(limit):
            hint = "The job can be started again when they are back: it goes on after its last batch."
            raise OutageError(f"{named}, and has not for {duration(limit)}", detail=trouble, hint=hint)

    def _recover(self) -> None:
        if self._troubled_since is not None:
            lasted = self._context.clock() - self._troubled_since
            self.warnings.append(f'table "{self._table.name}": Kafka answers again, after {lasted:.0f} s')
            self._troubled_since = None

    def _reached(self, partition: TopicPartition) -> int:
        return int(self._position.get(partition.name, self._starts.get(partition, 0)))

    def _waiting(self) -> dict[TopicPartition, int]:
        return {p: end - self._reached(p) for p, end in self._ends.items() if end > self._reached(p)}

    @property
    def waiting(self) -> int:
        return sum(self._waiting().values())

    def next_batch(self) -> Sequence[OffsetRange] | None:
        """Return a range of new offsets for each partition that has any, within the table's limits of rows and bytes per batch.

        Raises DataError for a partition that has lost offsets, unless `scan.on-data-loss` is `continue`.
        """
        self._check_ends()
        shares = shared(self._waiting(), self._max_rows)
        starts = {partition: self._reached(partition) for partition in shares}
        counts = self._sizes.cut(shares, starts, self._max_bytes)
        ranges = [OffsetRange(*p, start, start + counts[p]) for p, start in starts.items()]
        self._position.add(ranges)
        return ranges or None

    def _check_ends(self) -> None:
        """Handle partitions that end before their position, as the topic was deleted and created again.

        Raises DataError, unless `scan.on-data-loss` is `continue`: then they are read from their start.
        """
        if self.bounded:
            return
        now = self._context.clock()
        behind = {p for p, end in self._ends.items() if end < self._reached(p)}
        self._back = {p: self._back.get(p, now) for p in behind}
        for partition, since in self._back.items():
            if now - since < _BACK_SECONDS:
                continue
            reached, end = self._reached(partition), self._ends[partition]
            if not options.continues(self._table):
                raise lost_offsets(self._table.name, partition, end, reached, 0, end)
            self.warnings.append(
                f'table "{self._table.name}": {partition} ends at offset {end}, and was read up to {reached}; '
                "it is read from its start"
            )
            self._position.reached[partition.name] = self._cluster.earliest([partition])[partition]

    def partitions(self) -> Mapping[str, bool]:
        waiting = self._waiting()
        return {p.name: p in waiting for p in self._ends if not self.bounded or p in waiting}

    # -- what was read

    def committed(self, position: Offsets) -> None:
        """Commit the position as offsets of the table's consumer group, if it has one, for tools that monitor the group's lag."""
        if self._group is None:
            return
        offsets = {_named(name): int(offset) for name, offset in position.reached.items()}
        self._published = self._cluster.publish(self._group, offsets)

    def close(self) -> None:
        # The last commit of offsets may still be under way. It is only for monitoring, so errors are ignored.
        if self._published is not None:
            with contextlib.suppress(Exception):
                self._published.result(_CLOSE_SECONDS)


def _named(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
