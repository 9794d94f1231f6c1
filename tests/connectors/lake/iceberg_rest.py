"""Apache Iceberg's own REST catalog, for tests: the server that its projects test with, over a SQLite file.

`python -m tests.connectors.lake.iceberg_rest` fetches its jars into the user's cache; the others are among PySpark's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pyspark

from tests.kafka_broker import SMALL, BrokerError, fetch_jars, free_port
from tests.processes import wait_until

JARS = Path(__file__).with_name("iceberg_rest_jars.txt")
_OF_SPARK = (
    *("jackson-core-2", "jackson-databind-", "jackson-annotations-", "slf4j-api-", "log4j-api-", "log4j-core-"),
    *("log4j-slf4j2-", "hadoop-client-", "avro-1", "RoaringBitmap-", "aircompressor-"),
)


def fetch() -> list[Path]:
    """Return the jars of the server, downloaded once."""
    spark = (Path(pyspark.__file__).parent / "jars").iterdir()
    return [*fetch_jars(JARS, "iceberg-rest"), *(jar for jar in spark if jar.name.startswith(_OF_SPARK))]


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """Start a catalog whose tables are below a folder; yield its address, and stop it at the end."""
    port, home = free_port(), os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    options = {
        "WAREHOUSE": f"file://{folder}/lake",
        "URI": f"jdbc:sqlite:file:{folder}/rest.db",
        "REST_PORT": str(port),
    }
    with open(folder / "rest.log", "wb") as log:
        server = subprocess.Popen(
            [java, *SMALL, "-cp", ":".join(map(str, fetch())), "org.apache.iceberg.rest.RESTCatalogServer"],
            env=os.environ | {f"CATALOG_{name}": value for name, value in options.items()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, (folder / "rest.log").read_text()[-2000:]
        try:
            with urlopen(f"{url}/v1/config", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_until(answers)
        yield url
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    try:
        fetch()
    except BrokerError as failed:
        sys.exit(f"error: {failed}")
