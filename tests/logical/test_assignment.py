"""Which types are stored in which, by themselves."""

from __future__ import annotations

import pytest

from sqlstream.logical.bind.assignment import assignable

NUMBERS = ("TINYINT", "BIGINT", "HUGEINT", "UINTEGER", "FLOAT", "DOUBLE", "DECIMAL(10,2)")
TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DATE", "TIMESTAMP_S")
TEXTS = ("VARCHAR", "ENUM('a', 'b')")
ALONE = ("BOOLEAN", "BLOB", "UUID", "TIME", "INTERVAL", "STRUCT(a INTEGER)", "INTEGER[]", "MAP(VARCHAR, INTEGER)")
KINDS = (NUMBERS, TIMES, TEXTS, *((t,) for t in ALONE))


@pytest.mark.parametrize("source", [t for kind in KINDS for t in kind])
def test_a_value_fits_its_own_kind_and_no_other(source: str) -> None:
    own = next(kind for kind in KINDS if source in kind)
    for kind in KINDS:
        for target in kind:
            # In Flink a UUID is a text.
            fits = kind is own or (source, target) == ("UUID", "VARCHAR")
            assert assignable(source, target) == fits, f"{source} into {target}"


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        ('"NULL"', "VARCHAR", True),
        ("INTEGER[]", "BIGINT[]", True),
        ("INTEGER[]", "VARCHAR[]", False),
        ("INTEGER[3]", "BIGINT[]", True),
        ("STRUCT(a INTEGER, b DATE)", "STRUCT(B TIMESTAMP, A DOUBLE)", True),
        ("STRUCT(a INTEGER)", "STRUCT(b INTEGER)", False),
        ("STRUCT(a INTEGER, b DATE)", "STRUCT(a INTEGER)", False),
        ("MAP(VARCHAR, INTEGER)", "MAP(VARCHAR, DOUBLE)", True),
        ("MAP(VARCHAR, INTEGER)", "MAP(INTEGER, INTEGER)", False),
        ("STRUCT(a INTEGER[])[]", "STRUCT(a DOUBLE[])[]", True),
    ],
)
def test_nested_values_fit_by_their_parts(source: str, target: str, fits: bool) -> None:
    assert assignable(source, target) == fits
