"""Notebooks: the magic `%%sqlstream`, and results and jobs as HTML. `%load_ext sqlstream.notebook` loads both."""

from __future__ import annotations

from typing import Any

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ipython: Any) -> None:
    """Register the magic and the displays in an IPython shell, which calls this for `%load_ext sqlstream.notebook`."""
    from sqlstream.notebook.magic import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Close the session that the magic has opened, which stops its jobs after their batches."""
    from sqlstream.notebook.magic import unload

    unload(ipython)
