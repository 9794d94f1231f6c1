"""`examples/operations`: what the image's steps make runs as the pods of the manifests do; one takes over from another."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.requirements import Requirement

from sqlstream.server.settings import DEFAULT_PORT
from sqlstream.spark.java import OLDEST
from tests.certificates import Authority
from tests.operations.image import FILES, ROOT, Image, build, stages, without_rights
from tests.operations.manifests import SERVER, container, environment, project_file
from tests.processes import kill_group, wait_until
from tests.stores.server import S3Server

TOKEN = "a-token-of-the-test-0123"


def test_the_image_has_what_it_is_said_to_have() -> None:
    first, last = stages()
    assert first.base == last.base
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm", last.base), "the base is pinned"
    for stage in (first, last):
        for text in stage.of("COPY"):
            if "--from" not in text:
                assert all((ROOT / source).exists() for source in text.split()[:-1] if not source.startswith("--"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extras] = [text.removeprefix("EXTRAS=") for text in first.of("ARG")]
    for extra in extras.split(","):
        for text in project["optional-dependencies"][extra]:
            needed = Requirement(text)
            assert importlib.metadata.version(needed.name) in needed.specifier
    steps = " ".join(last.of("RUN"))
    [java] = re.findall(r"openjdk-(\d+)-jre-headless", steps)
    assert int(java) >= OLDEST
    [user] = last.of("USER")
    assert f"--uid {user.partition(':')[0]} " in steps
    assert user == "10001:10001"
    assert last.of("EXPOSE") == [str(DEFAULT_PORT)]
    assert last.words("CMD") == container(SERVER)["args"]


def test_an_executor_is_started_as_spark_says(tmp_path: Path) -> None:
    """Spark on Kubernetes says all that an executor needs in variables."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    java.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_EXECUTOR_POD_NAME": "streams-exec-3",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Dquoted=a b $HOME 'c'",
    }
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho /jars\n")
    python.chmod(0o755)
    command = ["sh", str(FILES / "entrypoint.sh"), "executor"]
    said = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.splitlines()
    assert said[:4] == ["-Dspark.driver.port=7078", "-Dquoted=a b $HOME 'c'", "-Xms1024m", "-Xmx1024m"]
    assert said[4:7] == [
        "-cp",
        "/opt/spark/conf:/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ]
    told = dict(zip(said[7::2], said[8::2], strict=True))
    assert told == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "streams-exec-3",
    }


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # Not below a folder that only root may enter.
    folder = Path(tempfile.mkdtemp(prefix="sqlstream-image-"))
    folder.chmod(0o755)
    yield build(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


def mount(files: Path, folder: Path) -> None:
    """Have files in a folder as Kubernetes has those of a ConfigMap: in another folder, to which links lead."""
    shutil.copytree(files, folder / "..2026_03_02_09_00_00.1")
    (folder / "..data").symlink_to("..2026_03_02_09_00_00.1")
    for path in files.iterdir():
        (folder / path.name).symlink_to(f"..data/{path.name}")


class Pod:
    """A process that runs what the container of the Deployment runs, with its environment, as a user without rights."""

    def __init__(self, image: Image, s3: S3Server, bucket: str, name: str):
        self.folder = image.folder / name
        user = without_rights()
        for own in ("home", "tmp", "secrets", "project"):
            (self.folder / own).mkdir(parents=True)
            if user:
                os.chown(self.folder / own, user["user"], user["group"])
        mount(FILES / "project" / "catalog", self.folder / "project" / "catalog")
        tokens, certificate = self.folder / "secrets" / "tokens", self.folder / "secrets" / "tls"
        tokens.write_text(f"submit {TOKEN}\n")
        Authority("test").give("server", certificate)
        for path in (tokens, certificate):
            # As Kubernetes gives a Secret to a pod: a file of root's that the group reads.
            path.chmod(0o440 if user else 0o400)
            if user:
                os.chown(path, 0, user["group"])
        variables = {
            **environment(SERVER),
            **s3.environment,
            "PATH": f"{image.bin}:{os.environ['PATH']}",
            "HOME": f"{self.folder}/home",
            "TMPDIR": f"{self.folder}/tmp",
            "WAREHOUSE": f"{bucket}/warehouse",
            # What is elsewhere here than in a pod.
            "SQLSTREAM_CONFIG": str(project_file()),
            "SQLSTREAM_SERVER_PORT": "0",
            "SQLSTREAM_SERVER_TOKENS": str(tokens),
            "SQLSTREAM_SERVER_TLS_CERT": str(certificate),
            "SQLSTREAM_SERVER_TLS_KEY": str(certificate),
        }
        self.said = self.folder / "said"
        with self.said.open("w") as output:
            self.process = subprocess.Popen(
                [*image.command, *container(SERVER)["args"]],
                cwd=self.folder / "project",
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **user,
            )
        wait_until(lambda: "listening on" in self.said.read_text() or self.process.poll() is not None)
        found = re.search(r"listening on (https)://0\.0\.0\.0:(\d+)", self.said.read_text())
        assert found, self.said.read_text()
        self.port = int(found[2])

    def probe(self, name: str) -> int:
        """Ask what Kubernetes asks: by the pod's address, without a token, whatever the certificate says."""
        asked = container(SERVER)[name]["httpGet"]
        return self._get(f"{asked['scheme'].lower()}://127.0.0.1:{self.port}{asked['path']}").status_code

    def is_ready(self) -> bool:
        return self._get(f"https://127.0.0.1:{self.port}/v1/ready").status_code == 200

    def _get(self, url: str) -> httpx.Response:
        return httpx.get(url, verify=False, headers={"Host": f"10.1.2.3:{DEFAULT_PORT}"}, timeout=30)

    def post(self, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": "sqlstream.streams.svc"}
        url = f"https://127.0.0.1:{self.port}{path}"
        return httpx.post(url, json=body, headers=headers, verify=False, timeout=60).json()


@contextmanager
def running(*arguments: Any) -> Iterator[Pod]:
    pod = Pod(*arguments)
    try:
        yield pod
    finally:
        kill_group(pod.process)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_second_pod_takes_over_from_one_that_is_killed(image: Image, s3: S3Server) -> None:
    bucket = s3.bucket()
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    with running(image, s3, bucket, "first") as first, running(image, s3, bucket, "second") as second:
        assert {pod.probe(name) for pod in (first, second) for name in probes} == {200}
        wait_until(first.is_ready)
        # The standby lives and answers, and supervises nothing.
        assert not second.is_ready()
        kill_group(first.process)
        sql = "CREATE TABLE IF NOT EXISTS given (a INT); INSERT INTO given VALUES (7)"
        assert second.post("/v1/jobs", {"sql": sql})["jobs"] == ["given_values"]
        wait_until(second.is_ready)
        wait_until(lambda: second.post("/v1/query", {"sql": "FROM given"}).get("rows") == [[7]])
