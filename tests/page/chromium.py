"""A headless Chromium for tests: one that is installed, or Debian's, unpacked into the user's cache.

`python -m tests.page.chromium` fetches it: the packages that this machine lacks, without the rights to install them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kafka_broker import cache_folder

PACKAGE = "chromium-headless-shell"
# Text without a font is boxes.
_PACKAGES = (PACKAGE, "fonts-dejavu-core", "fonts-inter")
_INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_BINARY = "usr/lib/chromium/chromium-headless-shell"
# What apt says of a package that it would install.
_TO_INSTALL = re.compile(r"^Inst (\S+) \((\S+) ", re.MULTILINE)
HINT = "`make chromium` fetches it on Debian; elsewhere install Chromium, so that `chromium` is a command"


class ChromiumError(Exception):
    """A browser that is not there, or cannot be had."""


@dataclass(frozen=True)
class Chromium:
    """A program, and the variables of the environment that it takes."""

    path: str
    environment: dict[str, str | float | bool]


def found() -> Chromium:
    """Return the browser that there is. Raises ChromiumError, which says how to get one."""
    for name in _INSTALLED:
        if path := shutil.which(name):
            return Chromium(path, {})
    folder = _folder()
    if not (folder / _BINARY).exists():
        raise ChromiumError(f"there is no Chromium: {HINT}")
    libraries = [folder / part for part in ("usr/lib/chromium", *_library_folders(folder))]
    return Chromium(
        str(folder / _BINARY),
        {"LD_LIBRARY_PATH": ":".join(map(str, libraries)), "FONTCONFIG_FILE": str(folder / "fonts.conf")},
    )


def _folder() -> Path:
    return cache_folder() / "chromium"


def _library_folders(folder: Path) -> Iterator[str]:
    """Yield the folders that have libraries; some have them in one of their own, such as that of PulseAudio."""
    libraries = {file.parent for root in ("lib", "usr/lib") for file in (folder / root).rglob("*.so*")}
    yield from sorted(str(path.relative_to(folder)) for path in libraries if "chromium" not in path.parts[-1])


def fetch() -> Chromium:
    """Return a browser, downloaded once (100 MB) where none is installed. Raises ChromiumError."""
    with contextlib.suppress(ChromiumError):
        return found()
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise ChromiumError(f"there is no Chromium, and no {tool} to fetch it with: install the package chromium")
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        made = Path(partial) / "unpacked"
        for package in _downloaded(Path(partial)):
            _run("dpkg", "-x", str(package), str(made))
        (made / "fonts.conf").write_text(
            f"<fontconfig><dir>{folder}/usr/share/fonts</dir><dir>/usr/share/fonts</dir>"
            "<alias binding='same'><family>system-ui</family><prefer><family>Inter</family></prefer></alias>"
            "<alias binding='same'><family>ui-monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>"
            f"<cachedir>{folder}/fonts-cache</cachedir></fontconfig>\n"
        )
        # Another process may have been faster.
        with contextlib.suppress(OSError):
            os.rename(made, folder)
    return found()


def _downloaded(folder: Path) -> list[Path]:
    """Download the packages that are not installed here; apt checks that they are Debian's."""
    packages, options = _missing([]), list[str]()
    if not packages:
        # The lists of packages are not there, or old; ours are kept beside them.
        for part in ("lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True)
        options = [f"-oDir::State::lists={folder / 'lists'}", f"-oDir::Cache={folder / 'cache'}"]
        _run("apt-get", *options, "-qq", "update")
        packages = _missing(options)
    if not packages:
        raise ChromiumError(f"apt has no package {PACKAGE}: install Chromium in another way")
    _run("apt-get", *options, "-qq", "download", *packages, folder=folder)
    return sorted(folder.glob("*.deb"))


def _missing(options: list[str]) -> list[str]:
    """Return the packages to install, as apt names them, with their versions."""
    command = ["apt-get", *options, "--simulate", "--no-install-recommends", "install", *_PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True)
    return [f"{name}={version}" for name, version in _TO_INSTALL.findall(done.stdout)]


def _run(*command: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
    if done.returncode:
        raise ChromiumError(f"{' '.join(command[:2])} failed:\n{done.stdout[-2000:]}")


if __name__ == "__main__":
    try:
        fetch()
    except ChromiumError as failed:
        sys.exit(f"error: {failed}")
