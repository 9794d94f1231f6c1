"""Finds the Java that runs Spark, before Spark starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlstream.errors import UsageError

OLDEST = 17
# Homebrew installs these without putting them on the PATH.
_HOMEBREW = [f"{p}/opt/{f}/bin/java" for p in ("/opt/homebrew", "/usr/local") for f in ("openjdk@17", "openjdk")]


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: the path of its launcher, and its feature version (17, 21, ..)."""

    path: str
    version: int


def find_java() -> Java:
    """Return the first Java of JAVA_HOME, the PATH and Homebrew that is new enough. Raises UsageError if there is none."""
    too_old = None
    for path in _candidates():
        version = java_version(path)
        if version is not None and version >= OLDEST:
            return Java(path, version)
        if version is not None:
            too_old = too_old or Java(path, version)
    obstacle = f"{too_old.path} is Java {too_old.version}" if too_old else "there is none"
    raise UsageError(
        f"Spark needs Java {OLDEST} or newer and {obstacle}",
        hint=f"Install it with `apt-get install openjdk-{OLDEST}-jre-headless` (Debian, Ubuntu) or "
        f"`brew install openjdk@{OLDEST}` (macOS), or set JAVA_HOME. Without Java jobs run with --engine local, in this process.",
    )


def _candidates() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield os.path.join(home, "bin", "java")
    if launcher := shutil.which("java"):
        yield launcher
    yield from _HOMEBREW


def java_version(path: str) -> int | None:
    """Return the feature version of a Java launcher; None if it does not work."""
    if not os.access(path, os.X_OK):
        return None
    # Reading the JDK's file `release` saves starting a JVM.
    try:
        text = (Path(path).resolve().parent.parent / "release").read_text()
        match = re.search(r'^JAVA_VERSION="([\d.]+)', text, re.MULTILINE)
    except OSError:
        match = None
    return _feature(match.group(1)) if match else _ask(path)


def _ask(path: str) -> int | None:
    # macOS has a /usr/bin/java that only says where to download one.
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d[\d.]*)', answer.stderr + answer.stdout)
    return _feature(match.group(1)) if match and answer.returncode == 0 else None


def _feature(version: str) -> int:
    """Return 17 for 17.0.15, and 8 for 1.8.0."""
    numbers = [int(n) for n in version.split(".") if n]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
