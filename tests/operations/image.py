"""The image of `examples/operations/Dockerfile` without a container: its steps, and an environment that they make in a folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "operations"
# Where the image has what it runs.
HOME = "/opt/sqlstream"


@dataclass
class Stage:
    """A stage of a Dockerfile: the image that it begins with, its name, and its instructions in order, each with its text."""

    base: str
    name: str | None
    steps: list[tuple[str, str]] = field(default_factory=list)

    def of(self, instruction: str) -> list[str]:
        """Return the texts of all instructions of a kind."""
        return [text for name, text in self.steps if name == instruction]

    def words(self, instruction: str) -> list[str]:
        """Return the words of an instruction that is there once, as JSON."""
        [text] = self.of(instruction)
        return list(json.loads(text))


def stages() -> list[Stage]:
    """Return the stages of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (FILES / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name or None))
        elif instruction:
            found[-1].steps.append((instruction, rest))
    return found


@dataclass(frozen=True)
class Image:
    """What the steps of the Dockerfile have made in a folder."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "opt" / "bin"

    @property
    def command(self) -> list[str]:
        """What a container runs before the words that it is given; `tini`, which is of the container, is left out."""
        words = stages()[-1].words("ENTRYPOINT")
        assert words[:2] == ["tini", "--"]
        return ["sh", str(self.folder / Path(words[2]).name), *words[3:]]


def build(folder: Path) -> Image:
    """Run the steps that make the environment. Packages come from the tests' own environment, not from a registry."""
    first, last = stages()
    context = folder / "src"
    for text in first.of("COPY"):
        *sources, target = text.split()
        for source in sources:
            _copy(ROOT / source, context / target / (source if len(sources) > 1 else ""))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    wheel, install = first.of("RUN")
    opt = folder / "opt"
    # What would ask a registry is told not to.
    wheel = wheel.replace("pip wheel", f"{sys.executable} -m pip wheel --no-build-isolation --no-index --quiet")
    install = install.replace("python -m venv", f"{python()} -m venv --without-pip")
    install = install.replace(f"{HOME}/bin/pip install", _pip_install(opt))
    for step in (wheel, install):
        step = step.replace("/wheels", f"{folder}/wheels").replace(HOME, str(opt)).replace("[${EXTRAS}]", "")
        subprocess.run(["sh", "-euc", step], cwd=context, env=environment, check=True, capture_output=True, text=True)
    [library] = (opt / "lib").glob("python*/site-packages")
    (library / "tests.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    for text in last.of("COPY"):
        source = text.split()[-2]
        if "--from" not in text:
            _copy(ROOT / source, folder / Path(source).name)
    return Image(folder)


def _pip_install(opt: Path) -> str:
    return (
        f"{sys.executable} -m pip --python {opt}/bin/python install --no-index --no-deps --no-compile --quiet "
        "--ignore-installed"
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


@cache
def python() -> str:
    """Return the interpreter of the tests, or one of its version that users without rights can run, too, if there is one."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [sys.executable, f"/usr/local/bin/{name}", f"/usr/bin/{name}"]
    return next((path for path in candidates if _runs(path, **_user())), sys.executable)


def without_rights() -> dict[str, Any]:
    """Return what starts a process as the image's user, where the tests run as root; elsewhere as their own user.

    Nor where no interpreter can be run by others: that of the tests may be in a folder of root's own.
    """
    return _user() if _runs(python(), **_user()) else {}


def _user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    uid = int(stages()[-1].of("USER")[0].partition(":")[0])
    return {"user": uid, "group": uid, "extra_groups": []}


def _runs(path: str, **user: Any) -> bool:
    try:
        subprocess.run([path, "-c", "import venv"], check=True, capture_output=True, cwd="/", **user)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
