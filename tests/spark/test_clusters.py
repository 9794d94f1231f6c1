"""What a cluster is told beside the user's settings, and the places that are refused for Spark's checkpoint."""

from __future__ import annotations

import pytest

from sqlstream.errors import UsageError
from sqlstream.spark.clusters import CHECKPOINT, check_checkpoint, cluster_settings
from sqlstream.warehouse.filesystem import LocalFilesystem

MASTER = "spark://host:7077"
ENVIRONMENT = {
    "AWS_SECRET_ACCESS_KEY": "hush",
    "AWS_ENDPOINT_URL": "http://store:9000",
    "PATH": "/bin",
    "MY_TOKEN": "t",
}


def test_executors_of_a_standalone_cluster_get_what_opens_stores() -> None:
    found = cluster_settings(MASTER, {}, ENVIRONMENT)
    assert {n: v for n, v in found.items() if n.startswith("spark.executorEnv.")} == {
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "hush",
        "spark.executorEnv.AWS_ENDPOINT_URL": "http://store:9000",
    }


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]", "yarn", "k8s://https://host:6443"])
def test_others_have_an_environment_of_their_own(master: str) -> None:
    assert cluster_settings(master, {}, ENVIRONMENT) == {}


def test_hadoop_finds_the_store_that_the_environment_names() -> None:
    found = cluster_settings(MASTER, {CHECKPOINT: "s3a://bucket/scratch"}, ENVIRONMENT)
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://store:9000"
    assert "FileContextBased" in found["spark.sql.streaming.checkpointFileManagerClass"]
    assert not [value for name, value in found.items() if "hush" in value and not name.startswith("spark.executorEnv.")]


@pytest.mark.parametrize(
    ("place", "message"),
    [("scratch", "no absolute path"), ("hdfs://host/scratch", "cannot be at"), ("s3://bucket/scratch", "cannot be at")],
)
def test_places_that_not_all_see(place: str, message: str) -> None:
    check_checkpoint(MASTER, LocalFilesystem(), {CHECKPOINT: "/shared/scratch"})
    with pytest.raises(UsageError, match=message):
        check_checkpoint(MASTER, LocalFilesystem(), {CHECKPOINT: place})
