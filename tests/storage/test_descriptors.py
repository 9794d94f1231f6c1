"""What batches have read: packed as it is folded, by any number of descriptors at a time, and read meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sqlstream.storage import descriptors
from sqlstream.storage.descriptors import Descriptors, Fold
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.records import write_sealed


def fold(kept: Descriptors, first: int, count: int) -> None:
    """Write some descriptors, and fold them."""
    for sequence in range(first, first + count):
        write_sealed(LocalFilesystem(), kept.path(sequence), json.dumps({"sequence": sequence}))
    kept.write_fold(Fold(first + count - 1, ()), range(first, first + count))


def numbers(kept: Descriptors, last: int) -> list[int] | None:
    texts = kept.texts(last)
    return None if texts is None else [json.loads(text)["sequence"] for text in texts]


# The sizes of folds follow how many batches a job has in a minute. A job that begins where its options say folds what there is.
@pytest.mark.parametrize("sizes", [[4, 20, 4, 4, 4], [4, 1, 4, 1, 4, 4], [30, 1, 9, 5, 3, 3] * 5])
def test_batches_that_were_folded_by_different_numbers_are_read_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    monkeypatch.setattr(descriptors, "_FAN", 3)
    kept, done = Descriptors(LocalFilesystem(), str(tmp_path)), 0
    for size in sizes:
        fold(kept, done, size)
        done += size
        assert numbers(kept, done - 1) == list(range(done))
    assert len(kept.packs()) < 6


def test_a_pack_that_is_lost_is_not_covered_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_FAN", 3)
    kept = Descriptors(LocalFilesystem(), str(tmp_path))
    fold(kept, 0, 4)
    fold(kept, 4, 4)
    (tmp_path / kept.packs()[1]).unlink()
    for first in (8, 12, 16):
        fold(kept, first, 4)
    assert numbers(kept, 3) == [0, 1, 2, 3]
    assert numbers(kept, 19) is None


def test_packs_with_many_bytes_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_FAN", 2)
    monkeypatch.setattr(descriptors, "_FULL", 1)
    kept = Descriptors(LocalFilesystem(), str(tmp_path))
    for first in range(0, 40, 4):
        fold(kept, first, 4)
    assert len(kept.packs()) == 10
    assert numbers(kept, 39) == list(range(40))


class Meanwhile(LocalFilesystem):
    """Does something once, after the first look into a folder."""

    def __init__(self, what: Callable[[], None]):
        self._what = [what]

    def entries(self, directory: str) -> list[str]:
        found = super().entries(directory)
        if self._what:
            self._what.pop()()
        return found


def test_what_is_folded_while_it_is_looked_at_is_found(tmp_path: Path) -> None:
    kept = Descriptors(LocalFilesystem(), str(tmp_path))
    fold(kept, 0, 3)
    for sequence in (3, 4):
        write_sealed(LocalFilesystem(), kept.path(sequence), json.dumps({"sequence": sequence}))
    reader = Descriptors(Meanwhile(lambda: kept.write_fold(Fold(4, ()), [3, 4])), str(tmp_path))
    assert numbers(reader, 4) == [0, 1, 2, 3, 4]
