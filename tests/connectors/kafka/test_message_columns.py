"""Columns of messages, which are made of many at once."""

from __future__ import annotations

from itertools import groupby

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.connectors.kafka.ranges import TopicPartition
from sqlstream.connectors.kafka.reader import _runs
from sqlstream.connectors.kafka.source import offsets_of


def _message(place: TopicPartition, offset: int) -> Message:
    return Message(topic=place.topic, partition=place.number, offset=offset, value=b"")


@given(st.lists(st.integers(0, 40), unique=True, max_size=12).map(sorted), st.integers(0, 2**62))
def test_offsets_are_known_with_holes_and_without(steps: list[int], first: int) -> None:
    offsets = [first + step for step in steps]
    assert offsets_of([_message(TopicPartition("t", 0), offset) for offset in offsets]).tolist() == offsets


# What was taken before a partition was left may have another topic.
_PLACES = [TopicPartition(topic, number) for topic in ("a", "b", "left") for number in (0, 1)]


@given(st.lists(st.sampled_from(_PLACES), max_size=20), st.sampled_from([["a"], ["a", "b"]]))
def test_messages_are_parted_where_the_partition_changes(places: list[TopicPartition], topics: list[str]) -> None:
    if len(topics) == 1:
        places = [p for p in places if p.topic == "a"]
    messages = [_message(place, offset) for offset, place in enumerate(places)]
    found = [list(run) for run in _runs(messages, {name: number for number, name in enumerate(topics)})]
    keyed = groupby(messages, lambda m: (m.topic(), m.partition()))
    assert [[m.offset() for m in run] for run in found] == [[m.offset() for m in run] for _, run in keyed]
