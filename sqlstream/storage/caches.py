"""What a process keeps of stored files in memory: which segments it has checked, indexes of keys, and sums of changes."""

from __future__ import annotations

from sqlstream.storage.key_index import forget_indexes
from sqlstream.storage.segments import forget_known
from sqlstream.storage.sums import forget_sums


def forget_folder(folder: str) -> None:
    """Drop the indexes and sums of files in a folder, whose job this process no longer runs."""
    forget_indexes(f"{folder}/")
    forget_sums(f"{folder}/")


def forget_all() -> None:
    """Drop everything, as if this were a new process."""
    forget_known()
    forget_indexes()
    forget_sums()
