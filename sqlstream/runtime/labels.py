"""Integer labels that Spark's hash partitioning spreads evenly.

Spark places a group on a partition by the murmur3 hash of the grouping value, so the labels 0..B-1 would pile up on some
partitions.
"""

from __future__ import annotations

from collections import deque

_MASK = 0xFFFFFFFF
# Seed of org.apache.spark.sql.catalyst.plans.physical.HashPartitioning.
_SEED = 42


def partition_of(label: int, partitions: int) -> int:
    """Return the partition to which Spark assigns rows whose INT grouping value is `label`.

    >>> [partition_of(n, 4) for n in range(4)]
    [3, 3, 2, 3]
    """
    hashed = _murmur3(label)
    signed = hashed - (1 << 32) if hashed & 0x80000000 else hashed
    return signed % partitions


def spread_labels(count: int, partitions: int) -> tuple[int, ...]:
    """Return `count` labels; Spark assigns the n-th to partition n modulo `partitions`."""
    positions = [deque(range(index, count, partitions)) for index in range(partitions)]
    labels = [0] * count
    remaining, label = count, 0
    while remaining:
        if waiting := positions[partition_of(label, partitions)]:
            labels[waiting.popleft()] = label
            remaining -= 1
        label += 1
    return tuple(labels)


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK


def _murmur3(value: int) -> int:
    """Return the murmur3 hash (x86, 32 bits) of a 32-bit integer, as Spark's Murmur3_x86_32.hashInt."""
    k = (value * 0xCC9E2D51) & _MASK
    k = (_rotate(k, 15) * 0x1B873593) & _MASK
    h = (_rotate(_SEED ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    return h ^ (h >> 16)
