"""The files of `examples/operations` as their readers see them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.operations.image import FILES

# The folders that `kubectl apply --kustomize` takes.
SERVER, EXECUTORS = FILES / "kubernetes", FILES / "executors"
# What Kubernetes and whoever deploys fill in.
GIVEN = {"POD_NAME": "sqlstream-0", "POD_NAMESPACE": "streams", "POD_IP": "10.1.2.3"}


def load(path: Path) -> list[Any]:
    """Return the documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def project_file() -> Path:
    """Return the configuration of all deployments."""
    return FILES / "project" / "sqlstream.toml"


def kustomizations(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder with what its kustomization says, and those that it is made of."""
    [found] = load(folder / "kustomization.yaml")
    yield folder, found
    for name in found.get("resources", ()):
        if (folder / name).is_dir():
            yield from kustomizations((folder / name).resolve())


@cache
def resources(folder: Path) -> list[dict[str, Any]]:
    """Return the resources that a folder makes, without those that are generated, and without patches."""
    files = [at / name for at, found in kustomizations(folder) for name in found.get("resources", ())]
    return [one for file in files if file.is_file() for one in load(file)]


def generated(folder: Path) -> dict[str, dict[str, str]]:
    """Return the ConfigMaps that are generated, by name: the text of each key."""
    maps: dict[str, dict[str, str]] = {}
    for at, found in kustomizations(folder):
        for one in found.get("configMapGenerator", ()):
            files = {Path(name).name: (at / name).read_text() for name in one.get("files", ())}
            maps[one["name"]] = files | dict(text.split("=", 1) for text in one.get("literals", ()))
    return maps


def resource(folder: Path, kind: str) -> dict[str, Any]:
    """Return the one resource of a kind."""
    [found] = [one for one in resources(folder) if one["kind"] == kind]
    return found


def pod(folder: Path) -> dict[str, Any]:
    """Return the specification of the server's pods."""
    spec: dict[str, Any] = resource(folder, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(folder: Path) -> dict[str, Any]:
    """Return the server's container."""
    [found] = pod(folder)["containers"]
    return dict(found)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of the server's container, without Secrets."""
    one = container(folder)
    maps = generated(folder)
    found: dict[str, str] = {}
    for source in one["envFrom"]:
        found |= maps[source["configMapRef"]["name"]] if "configMapRef" in source else {}
    for variable in one["env"]:
        found[variable["name"]] = variable.get("value", GIVEN.get(variable["name"], ""))
    return found
