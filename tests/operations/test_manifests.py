"""`examples/operations`: names, ports, paths and settings of the manifests fit each other, and what the server has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sqlstream.configuration import load as load_configuration
from sqlstream.server.access import Role, read_tokens
from sqlstream.server.endpoints import ENDPOINTS
from sqlstream.server.settings import DEFAULT_PORT
from sqlstream.spark.clusters import check_checkpoint
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse
from tests.command_line import run_command
from tests.operations.image import FILES, stages
from tests.operations.manifests import (
    EXECUTORS,
    GIVEN,
    SERVER,
    container,
    environment,
    generated,
    kustomizations,
    load,
    pod,
    project_file,
    resource,
    resources,
)

PROFILES = ("compose", "prod", "executors", "yarn")
COMPOSE = load(FILES / "compose.yaml")[0]
VARIABLES = {"WAREHOUSE": "s3://bucket/warehouse", "IMAGE": "sqlstream:local", "AWS_REGION": "eu-central-1"} | GIVEN


def settings(profile: str) -> dict[str, Any]:
    variables = {**VARIABLES, "SQLSTREAM_CONFIG": str(project_file()), "SQLSTREAM_PROFILE": profile}
    found = load_configuration(str(project_file().parent), variables)
    return {name: one.value for name, one in found.settings.items()}


def test_manifests_are_as_kubernetes_has_them() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install --group test")
    kinds = []
    for one in [*resources(EXECUTORS), *load(EXECUTORS / "executor-pod.yaml")]:
        kubernetes_validate.validate(one, "1.34", strict=True)
        kinds.append(one["kind"])
    roles = ["Role", "RoleBinding", "ServiceAccount"]
    assert sorted(kinds) == sorted(
        ["Deployment", "NetworkPolicy", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "Service", *roles]
    )
    wrong = json.loads(json.dumps(resource(SERVER, "Deployment")))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_a_configuration(profile: str) -> None:
    found = settings(profile)
    image = stages()[-1]
    if profile != "yarn":
        assert found["server.host"] == "0.0.0.0"
        assert found["server.insecure"] if profile == "compose" else found["server.tls-cert"]
    if found["warehouse"].startswith("/"):
        assert any(found["warehouse"] in step for step in image.of("RUN")), "the image has no such folder"
    # It is refused where executors would not see what the driver sees.
    conf = {name: str(value) for name, value in found.items() if name.startswith("spark.")}
    check_checkpoint(found.get("spark.master", "local[4]"), Warehouse(found["warehouse"]).fs, conf)


def test_the_command_shows_the_configuration_of_a_pod(tmp_path: Path) -> None:
    variables = {**os.environ, **environment(SERVER), "SQLSTREAM_CONFIG": str(project_file())}
    done = run_command(tmp_path, "config", "--format", "json", environment=variables)
    found = {row["setting"]: row["value"] for row in json.loads(done.stdout)}
    assert (found["warehouse"], found["server.host"]) == ("s3://my-bucket/warehouse", "0.0.0.0")


def test_volumes_have_what_the_configuration_names() -> None:
    volumes = {v["name"]: v for v in pod(SERVER)["volumes"]}
    mounts = {m["mountPath"]: m for m in container(SERVER)["volumeMounts"]}
    assert {m["name"] for m in mounts.values()} == volumes.keys()
    maps = generated(SERVER)
    for volume in volumes.values():
        if "configMap" in volume:
            assert volume["configMap"]["name"] in maps
    readme = (FILES / "README.md").read_text()
    secrets = [v["secret"]["secretName"] for v in volumes.values() if "secret" in v]
    secrets += [s["secretRef"]["name"] for s in container(SERVER)["envFrom"] if "secretRef" in s]
    assert secrets
    assert all(f" {name} " in readme for name in secrets), "the README does not say how the secret is made"
    prod = settings("prod")
    assert environment(SERVER)["SQLSTREAM_CONFIG"] in mounts
    for name, keys in (
        ("server.tokens", {"tokens"}),
        ("server.tls-cert", {"tls.crt"}),
        ("server.tls-key", {"tls.key"}),
    ):
        folder, file = os.path.split(prod[name])
        assert file in keys
        assert "secret" in volumes[mounts[folder]["name"]]
    assert mounts["/project/catalog"]["name"] == "catalog"
    assert maps["sqlstream-catalog"].keys() == {p.name for p in (FILES / "project" / "catalog").iterdir()}


def test_the_pod_may_do_nothing_that_it_need_not() -> None:
    [user] = stages()[-1].of("USER")
    security = pod(SERVER)["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
    assert str(security["fsGroup"]) in user
    [executor] = load(EXECUTORS / "executor-pod.yaml")
    assert executor["spec"]["securityContext"] == security
    assert executor["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    # A Service called sqlstream-server would give the pod a variable that is no setting.
    assert pod(SERVER)["enableServiceLinks"] is False


def test_services_and_probes_find_the_server() -> None:
    deployment, service = resource(SERVER, "Deployment"), resource(SERVER, "Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert resource(SERVER, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    policy = resource(SERVER, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"][0]["ports"] == [{"port": DEFAULT_PORT}]
    ports = {p["name"]: p["containerPort"] for p in container(SERVER)["ports"]}
    assert ports[service["spec"]["ports"][0]["targetPort"]] == DEFAULT_PORT
    open_to_all = {e.path for e in ENDPOINTS if e.method == "GET" and e.role is None}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container(SERVER)[name]["httpGet"]
        assert asked["port"] in ports
        assert asked["path"] in open_to_all
    account = resource(SERVER, "ServiceAccount")["metadata"]["name"]
    assert pod(SERVER)["serviceAccountName"] == account
    [subject] = resource(SERVER, "RoleBinding")["subjects"]
    namespaces = {found["namespace"] for _, found in kustomizations(EXECUTORS) if "namespace" in found}
    assert (subject["name"], {subject["namespace"]}) == (account, namespaces)


def test_executors_see_what_the_driver_sees() -> None:
    found = settings("executors")
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.scratch"
    assert found[f"{volume}.options.claimName"] == resource(EXECUTORS, "PersistentVolumeClaim")["metadata"]["name"]
    [patch] = load(EXECUTORS / "deployment.yaml")
    spec = patch["spec"]["template"]["spec"]
    [changed] = spec["containers"]
    mounts = {m["mountPath"] for m in changed["volumeMounts"]}
    assert mounts == {found[f"{volume}.mount.path"], found["spark.kubernetes.executor.podTemplateFile"]}
    # Spark's checkpoint is where all of them see it.
    assert found["spark.sql.streaming.checkpointLocation"] in mounts
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == found[f"{volume}.options.claimName"]
    assert {v["name"] for v in changed["env"]} == {"SQLSTREAM_PROFILE"}
    assert changed["name"] == container(SERVER)["name"]


def test_compose_has_what_its_services_name(tmp_path: Path) -> None:
    services, volumes = COMPOSE["services"], COMPOSE["volumes"]
    for one in services.values():
        for mount in one.get("volumes", ()):
            source = mount.split(":")[0]
            assert (FILES / source).exists() if source.startswith(".") else source in volumes
        assert all(name in services for name in one.get("depends_on", ()))
    server = services["server"]
    assert server["environment"]["SQLSTREAM_PROFILE"] in PROFILES
    assert all(port.startswith("127.0.0.1:") for one in services.values() for port in one.get("ports", ()))
    mounted = {mount.split(":")[1] for mount in server["volumes"]}
    compose = settings("compose")
    assert {compose["warehouse"], str(Path(compose["server.tokens"]).parent), "/project"} == mounted
    assert f"http://127.0.0.1:{DEFAULT_PORT}/v1/health" in server["healthcheck"]["test"][-1]
    [prometheus] = load(FILES / "prometheus" / "prometheus.yml")
    [scraped] = prometheus["scrape_configs"]
    [alias] = server["networks"]["default"]["aliases"]
    assert scraped["static_configs"] == [{"targets": [f"{alias}:{DEFAULT_PORT}"]}]
    [source] = load(FILES / "grafana" / "datasources" / "prometheus.yaml")[0]["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = load(FILES / "grafana" / "dashboards" / "sqlstream.yaml")[0]["providers"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert os.path.dirname(home) == provider["options"]["path"]
    assert f"./grafana-dashboard.json:{home}:ro" in services["grafana"]["volumes"]


def test_compose_makes_tokens_once(tmp_path: Path) -> None:
    service = COMPOSE["services"]["tokens"]
    [script] = service["command"]
    script = script.replace("$$", "$").replace("/secrets", str(tmp_path))
    script = script.replace("chown 10001:10001", "true").replace("python", sys.executable)

    def run() -> None:
        subprocess.run([*service["entrypoint"], script], check=True)

    # Of a run that was killed.
    (tmp_path / "tokens.new").write_text("read 0123456789abcdef0123\n")
    run()
    assert len((tmp_path / "tokens").read_text().splitlines()) == len(Role)
    tokens = read_tokens(str(tmp_path / "tokens"))
    for role in Role:
        assert tokens.role_of((tmp_path / role.name.lower()).read_text()) is role
    assert (tmp_path / "read").stat().st_mode & 0o777 == 0o644, "Prometheus is another user"
    assert (tmp_path / "admin").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "tokens").read_text()
    run()
    assert (tmp_path / "tokens").read_text() == before


def test_the_job_of_the_project_counts_clicks() -> None:
    project = FILES / "project"
    tables = (project / "catalog" / "clicks.sql").read_text()
    # Without its connector a table takes the rows of a test.
    head, _, rest = tables.partition(") WITH (")
    tables = f"{head}); {rest.partition(');')[2]}"
    with Stream(tables + (project / "clicks.sql").read_text()) as stream:
        stream.batch("clicks", [("home", 1, "2026-03-02 09:00:01"), ("home", 1, "2026-03-02 09:00:02")])
        stream.batch("clicks", [("home", 2, "2026-03-02 09:01:10")])
        [(page, _, clicks, visitors)] = stream.rows("clicks_per_page")
    assert (page, clicks, visitors) == ("home", 2, 1)
