"""The distribution that has sqlstream: its name on the package index, its version, and how its extras are installed.

The package, the command and the folder are called `sqlstream`. The distribution is not: another program has that name on the
package index.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "sqlstream-spark"
# The only place where it is set: `pyproject.toml` reads it here.
VERSION = "0.2.0"
# How the entry point of our command begins. That of the other program names another function.
_COMMAND = "sqlstream.cli.main:main"


def current_distribution() -> Distribution | None:
    """Return the distribution that owns our command; None if sqlstream is only on the path."""
    from importlib.metadata import entry_points

    commands = entry_points(group="console_scripts", name="sqlstream")
    ours = [command.dist for command in commands if command.value == _COMMAND and command.dist is not None]
    # A clone may have left behind the distribution of an earlier name.
    return max(ours, key=lambda distribution: distribution.name == NAME, default=None)


def is_clone() -> bool:
    """Whether this package is in a clone of the repository, and not installed from a wheel."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    return project.is_file() and f'name = "{NAME}"' in project.read_text("utf-8")


def install_command(extra: str) -> str:
    """Return the command that installs an extra: in a clone from the clone, otherwise from the package index."""
    if is_clone():
        return f"pip install -e '.[{extra}]'"
    distribution = current_distribution()
    name = NAME if distribution is None else distribution.name
    return f"pip install '{name}[{extra}]'"


def namesake(folders: Iterable[str] | None = None) -> str | None:
    """Return name and version of the other program called sqlstream if one of `folders` (default: sys.path) has it, else None.

    It reads only names of files and entry points, because every command calls it when it starts.
    """
    for folder in sys.path if folders is None else folders:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in sorted(entries):
            if not (entry.startswith("sqlstream-") and entry.endswith(".dist-info")):
                continue
            if _COMMAND not in _commands(Path(folder, entry)):
                return entry.removesuffix(".dist-info").replace("-", " ")
    return None


def namesake_warning() -> str | None:
    """Return a warning if the other program is installed, too, because its package and command have our names; None if not."""
    other = namesake()
    if other is None:
        return None
    distribution = current_distribution()
    name = NAME if distribution is None else distribution.name
    again = "pip install -e ." if is_clone() else f"pip install --force-reinstall --no-deps {name}"
    return (
        f'warning: the distribution "{other}", another program, is installed beside "{name}", and overwrites files of it\n'
        f"hint: Remove it and install this one again: pip uninstall sqlstream && {again}"
    )


def _commands(metadata: Path) -> str:
    try:
        return (metadata / "entry_points.txt").read_text("utf-8").replace(" ", "")
    except OSError:
        return ""
