"""Log files stay small while programs write them, and what was written last is there."""

from __future__ import annotations

import resource
from pathlib import Path

from sqlstream.warehouse.log_files import delete_log, rotate

LARGEST = 1_000


def test_a_log_begins_again_under_its_writer_and_keeps_the_last_copies(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    cuts = 0
    with log.open("ab", buffering=0) as writer:
        for number in range(1_000):
            writer.write(b"line %d\n" % number)
            cuts += rotate(str(log), LARGEST, 2)
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == ["job.log", "job.log.1", "job.log.2"]
    assert cuts > 2
    assert all(path.stat().st_size <= LARGEST + 10 for path in found)
    lines = [
        line for name in ("job.log.2", "job.log.1", "job.log") for line in (tmp_path / name).read_text().splitlines()
    ]
    assert lines == [f"line {number}" for number in range(1_000 - len(lines), 1_000)]
    delete_log(str(log), 2)
    assert not list(tmp_path.iterdir())


def test_a_small_log_and_none_at_all_stay_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    assert not rotate(str(log), LARGEST)
    log.write_text("line\n")
    assert not rotate(str(log), LARGEST)
    assert log.read_text() == "line\n"


def test_a_log_for_whose_copy_there_is_no_room_stays_and_so_do_the_copies_before(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("x" * 4 * LARGEST)
    (tmp_path / "job.log.1").write_text("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * LARGEST, before[1]))
    try:
        cuts = [rotate(str(log), LARGEST, 2) for _ in range(2)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert cuts == [False, False]
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {"job.log": 4 * LARGEST, "job.log.1": 6}
