"""Rows sorted as numbers are as ORDER BY has them."""

from __future__ import annotations

import random

import pyarrow as pa

from sqlstream.operators.process.sorting import sorted_by


def test_keys_and_places() -> None:
    generator = random.Random(5)
    for low, high, places in ((-3, 3, 50), (-(2**40), 2**40, 7), (5, 5, 9), (-(2**63), -(2**63) + 9, 30)):
        rows = [(generator.randint(low, high), generator.randint(0, places), n) for n in range(200)]
        table = pa.table(dict(zip("kon", map(list, zip(*rows, strict=True)), strict=True)))
        found = sorted_by(table, "k", "o")
        assert found is not None
        ordered = sorted(rows, key=lambda row: row[:2])
        assert [tuple(row.values()) for row in found[0].to_pylist()] == ordered
        assert found[1].column("k").to_pylist() == sorted({k for k, _, _ in rows})


def test_what_takes_sql() -> None:
    for keys in ([1, None], ["a", "b"], [-(2**63), 2**63 - 1], [0.5, 1.0], []):
        assert sorted_by(pa.table({"k": keys, "o": list(range(len(keys)))}), "k", "o") is None
