"""Write X.csv from each X.duckdb.sql of this folder: the batch answers over the flights and the weather of January.

Give it the folder of the prepared flights (examples/flights/prepare.py writes .demo/data/flights, and the
weather beside it).
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

HERE = Path(__file__).resolve().parent


def make(flights: Path, out: Path = HERE) -> list[Path]:
    """Run every query over the files of January, each result a CSV file in `out`, and return their paths."""
    written = []
    with duckdb.connect() as connection:
        for name, folder in (("flights", flights), ("weather", flights.parent / "weather")):
            connection.read_parquet(str(folder / "2013-01-*.parquet")).create_view(name)
        for query in sorted(HERE.glob("*.duckdb.sql")):
            path = out / query.name.replace(".duckdb.sql", ".csv")
            connection.sql(query.read_text()).write_csv(str(path))
            written.append(path)
    return written


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: make.py .demo/data/flights")
    for path in make(Path(sys.argv[1])):
        print(path.name, file=sys.stderr)
