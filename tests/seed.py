"""The seed of a run of tests: what properties try at random follows from it.

Each commit has a seed of its own, so that over time properties try many examples, and all runs of a commit the same ones. A run
says its seed; `--hypothesis-seed` takes one.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[1]
# Where there is no commit: of an archive of the sources.
_WITHOUT_COMMIT = "0"


def commit_seed(folder: Path = _ROOT) -> str:
    """Return the first digits of the commit that a folder is at."""
    try:
        shown = subprocess.run(
            ["git", "rev-parse", "--short=10", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return _WITHOUT_COMMIT
    return shown.stdout.strip() if shown.returncode == 0 else _WITHOUT_COMMIT
