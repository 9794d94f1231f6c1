"""Folders for temporary files of a process: what DuckDB has no memory for, what Spark shuffles.

Whoever makes files there deletes them, but not when its process is killed. A job that dies of a full disk and starts again must
not fill it further.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from uuid import uuid4

from sqlstream.warehouse.filesystem import make_folder
from sqlstream.warehouse.locks import process_is_alive

SPILL, SPARK = "spill", "spark"
_looking = threading.Lock()
# The process that has looked for what others left, by kind: one that is forked looks for itself.
_looked: dict[str, int] = {}


def process_folder(kind: str, *, shared: bool = False) -> str:
    """Return a folder of this process for one use, or for all uses of a kind. It is not there yet, the one around it is.

    The first call of a kind deletes the folders of processes that are gone.
    """
    root = f"{tempfile.gettempdir()}/sqlstream-{os.getuid()}/{kind}"
    with _looking:
        if _looked.get(kind) != os.getpid():
            make_folder(root)
            for name in os.listdir(root):
                pid = name.partition("-")[0]
                if pid.isdigit() and not process_is_alive(int(pid)):
                    shutil.rmtree(f"{root}/{name}", ignore_errors=True)
            _looked[kind] = os.getpid()
    return f"{root}/{os.getpid()}" if shared else f"{root}/{os.getpid()}-{uuid4().hex}"
