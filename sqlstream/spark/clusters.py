"""Spark on other machines: the environment and settings of executors, and where all of them see Spark's checkpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from sqlstream.errors import UsageError
from sqlstream.warehouse.filesystem import Filesystem, open_filesystem

# Spark's own setting: the folder in which checkpoints are, or its URI.
CHECKPOINT = "spark.sql.streaming.checkpointLocation"
# Variables with which a process opens a store. They are in the environment of executors, never on a command line.
_STORE_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_EC2_METADATA_DISABLED"),
    *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ENDPOINT"),
)
# Spark hides the values of settings whose names match: the first words are Spark's default, the last is `ACCOUNT_KEY`.
_HIDDEN = "(?i)secret|password|token|access[._]?key|account[._]?key"
# Schemes of Hadoop that this process can open, too.
_SCHEMES = ("s3a", "abfs", "abfss", "gs")


def is_cluster(master: str) -> bool:
    """Return whether a master runs tasks outside of this machine, judged by its address.

    >>> is_cluster("spark://host:7077"), is_cluster("local-cluster[2,1,1024]"), is_cluster("local[2]")
    (True, False, False)
    """
    return not master.startswith("local")


def cluster_settings(
    master: str, conf: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings that a master needs besides the user's, so that executors reach what this process reaches.

    >>> cluster_settings("spark://host:7077", {}, {"AWS_REGION": "eu-west-1", "HOME": "/root"})["spark.executorEnv.AWS_REGION"]
    'eu-west-1'
    """
    environment = os.environ if environment is None else environment
    settings: dict[str, str] = {}
    if master.startswith("spark://"):
        # Executors have the environment of the cluster's worker. Pods and containers have their own.
        settings |= {f"spark.executorEnv.{n}": environment[n] for n in _STORE_VARIABLES if environment.get(n)}
        settings["spark.redaction.regex"] = _HIDDEN
    if "://" in conf.get(CHECKPOINT, ""):
        # Ours replaces a file on local disks only: elsewhere a repeated task would find the file of the first one.
        settings["spark.sql.streaming.checkpointFileManagerClass"] = (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
        )
        if conf[CHECKPOINT].startswith("s3a://"):
            settings |= _s3a(environment)
    return settings


def _s3a(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Hadoop's settings for the store that the environment's variables name; it reads credentials from them itself."""
    settings = {
        "spark.hadoop.fs.s3a.endpoint.region": environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or "us-east-1",
        # Hadoop's fast way to put a file uses a client for another Netty than Spark's: "100 Continue" is an error to it.
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
    }
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        settings |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    return settings


def check_checkpoint(master: str, warehouse: Filesystem, conf: Mapping[str, str]) -> None:
    """Raise UsageError unless all tasks of a job can see Spark's checkpoint."""
    location = conf.get(CHECKPOINT)
    if location is None:
        if is_cluster(master) and not warehouse.local:
            raise UsageError(
                f'a job with its warehouse in an object store needs a place for Spark\'s checkpoint on "{master}"',
                hint=f"SET '{CHECKPOINT}' to a folder that all machines of the cluster see, or to a URI such as "
                "s3a://bucket/scratch.",
            )
        return
    scheme = location.partition("://")[0] if "://" in location else None
    if scheme is None and not os.path.isabs(location):
        raise UsageError(
            f'"{location}" ({CHECKPOINT}) is no absolute path', hint="Executors have other working folders."
        )
    if scheme is not None and scheme not in _SCHEMES:
        hint = f"Use a folder, or a URI that begins with {', '.join(_SCHEMES[:-1])} or {_SCHEMES[-1]}."
        raise UsageError(f'Spark\'s checkpoint cannot be at "{location}" ({CHECKPOINT})', hint=hint)


def checkpoint_files(location: str) -> tuple[Filesystem, str]:
    """Return the file system of a location in a checkpoint (a path, or a URI as Hadoop writes it), and the path in it."""
    return open_filesystem(re.sub("^s3a:", "s3:", location))
