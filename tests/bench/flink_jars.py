"""Fetch what Flink needs to read Parquet files, in the version of the installed Flink, from Maven's repository.

python tests/bench/flink_jars.py <virtual environment>
"""

from __future__ import annotations

import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2/org/apache/flink/flink-sql-parquet"


def main(environment: str) -> None:
    flink = version("apache-flink")
    name = f"flink-sql-parquet-{flink}.jar"
    urllib.request.urlretrieve(f"{REPOSITORY}/{flink}/{name}", Path(environment) / name)


if __name__ == "__main__":
    main(sys.argv[1])
