"""What a measured process does with its task and its result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

T = TypeVar("T")


def answer(task: type[T], measure: Callable[[T], Any]) -> None:
    """Run the task that the command line gives as JSON, print the result as JSON, and end."""
    print(json.dumps(asdict(measure(task(**json.loads(sys.argv[1]))))))
    sys.stdout.flush()
    # Nothing is left to clean up; DuckDB's clean-up at the end of Python prints about itself.
    os._exit(0)
