"""A job for each kind of operator, its rows, and DuckDB's answer over them.

Rows come in three stages. Each job reads a view, `given`, of the table `t`, so that another query is one of another view. A
migration doubles the numbers `x` and `y` in the state: the answer is that over rows whose numbers are doubled, if the job has
emitted nothing of them before, and else `doubled`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from sqlstream import Context, ListState, MapState, ValueState, process, state

STAGES = 3
# The seconds of a stage.
_LENGTH = 100
_ROWS = {"t": 24, "u": 14}
# Keys of `t`, from 1 on.
_KEYS = 6
_FILES = "WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json');"
_TIMED = "CREATE TABLE {name} (k BIGINT, {value} INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND{key}) "
_CHANGES = (
    "CREATE TABLE c (op STRING, id INT, p INT, x INT, PRIMARY KEY (id) NOT ENFORCED) "
    "WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json', 'changelog.op-column' = 'op');"
)
_LEFT_OUT = "x % 5 = 0"
# What a migration can double before it was emitted, so long the watermark waits.
WAITING = 3600


class Given(NamedTuple):
    k: int
    x: int


class Sums(NamedTuple):
    x: int
    n: int
    seen: str


@process
class Summed:
    """Adds up numbers, and remembers them."""

    x: ValueState[int] = state()
    seen: ListState[int] = state()
    often: MapState[int, int] = state()

    def process(self, ctx: Context, row: Given) -> Iterator[Sums]:
        self.x.value = (self.x.value or 0) + row.x
        self.seen.append(row.x)
        self.often[row.x % 3] = self.often.get(row.x % 3, 0) + 1
        yield Sums(self.x.value, self.often[row.x % 3], str(list(self.seen)))


@dataclass(frozen=True)
class Kind:
    """A kind of operator: the columns of the table, the query, and DuckDB's, where that is another one.

    `doubles` says whether a migration doubles numbers, or leaves the state as it is: changes that were emitted could not be taken
    back otherwise. `mixed` rows have times of all stages in each.
    """

    name: str
    columns: str
    stream: str
    batch: str = ""
    doubled: str = ""
    doubles: bool = True
    mixed: bool = False
    functions: tuple[Callable[..., Any], ...] = ()

    @property
    def answer(self) -> str:
        return self.batch or self.stream

    @property
    def reads(self) -> list[str]:
        """The tables that it reads."""
        words = self.stream.replace("(", " ").replace(")", " ").replace(",", " ").replace(".", " ").split()
        return [name for name in ("t", "u", "v", "c") if (name if name != "t" else "given") in words]

    def script(self, form: str, *, delay: int, out: str = "out", name: str = "job", end: str = "wait") -> str:
        """Return the job; its form is `old` or `new`. At the `end` of the input it may wait, or finish."""
        new = form == "new"
        tables = [_TIMED.format(name="t", value="x", delay=delay, key="") + _FILES.format(name="t")]
        tables += [_TIMED.format(name="u", value="y", delay=delay, key="") + _FILES.format(name="u")]
        tables += [
            _TIMED.format(name="v", value="y", delay=delay, key=", PRIMARY KEY (k) NOT ENFORCED")
            + _FILES.format(name="v")
        ]
        where = f" WHERE NOT ({_LEFT_OUT})" if new else ""
        columns = [c.split()[0] for c in self.columns.split(", PRIMARY")[0].split(", ")]
        # Rows of changes are not filtered: what is written is computed otherwise.
        shown = [f"{c} + 0 AS {c}" if c == "x" and new and "c" in self.reads else c for c in columns]
        return "\n".join(
            [
                *tables,
                _CHANGES,
                f"CREATE VIEW given AS SELECT * FROM t{where};",
                f"CREATE TABLE {out} ({self.columns});",
                f"SET 'pipeline.name' = '{name}';",
                f"SET 'execution.end-of-input' = '{end}';",
                f"INSERT INTO {out} WITH op AS ({self.stream}) SELECT {', '.join(shown)} FROM op;",
            ]
        )


_MINUTE = "INTERVAL '60' SECOND"
_BUCKET = "time_bucket(INTERVAL 60 SECOND, ts)"
_HALF = "time_bucket(INTERVAL 30 SECOND, ts)"
_PAIRS = """SELECT t.k, t.x * CASE WHEN NOT t.since AND u.since THEN 2 ELSE 1 END,
u.y * CASE WHEN NOT u.since AND t.since THEN 2 ELSE 1 END FROM raw_t t JOIN raw_u u ON t.k = u.k"""
_NEAR = "u.ts BETWEEN given.ts - INTERVAL '40' SECOND AND given.ts"
_WINDOWED = f"TUMBLE(TABLE {{}}, DESCRIPTOR(ts), {_MINUTE})"
_JOINED = "SELECT given.k, x, y FROM given {} JOIN u ON given.k = u.k"
_TTL = "/*+ STATE_TTL('given' = '1 d', 'u' = '1 d') */"
_RUN = "(PARTITION BY k ORDER BY ts)"
_SHARED = ("SELECT x % 60 AS m FROM given", "SELECT y % 60 AS m FROM u")

KINDS = (
    Kind(
        "GROUP BY",
        "k BIGINT, n BIGINT, x BIGINT, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT k, count(*) AS n, sum(x) AS x FROM given GROUP BY k",
    ),
    Kind(
        "GROUP BY with a time to live",
        "k BIGINT, n BIGINT, x BIGINT, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT /*+ STATE_TTL('given' = '1 d') */ k, count(*) AS n, sum(x) AS x FROM given GROUP BY k",
        "SELECT k, count(*), sum(x) FROM given GROUP BY k",
    ),
    Kind(
        "TUMBLE",
        "k BIGINT, a TIMESTAMP(3), x BIGINT",
        f"SELECT k, window_start AS a, sum(x) AS x FROM {_WINDOWED.format('given')} GROUP BY k, window_start, window_end",
        f"SELECT k, {_BUCKET}, sum(x) FROM given GROUP BY ALL",
    ),
    Kind(
        "HOP",
        "k BIGINT, a TIMESTAMP(3), x BIGINT",
        f"SELECT k, window_start AS a, sum(x) AS x FROM HOP(TABLE given, DESCRIPTOR(ts), INTERVAL '30' SECOND, {_MINUTE})"
        " GROUP BY k, window_start, window_end",
        f"SELECT k, a, sum(x) FROM (SELECT k, x, unnest([{_HALF}, {_HALF} - INTERVAL 30 SECOND]) AS a FROM given) GROUP BY k, a",
    ),
    Kind(
        "CUMULATE",
        "k BIGINT, e TIMESTAMP(3), x BIGINT",
        f"SELECT k, window_end AS e, sum(x) AS x FROM CUMULATE(TABLE given, DESCRIPTOR(ts), INTERVAL '30' SECOND, {_MINUTE})"
        " GROUP BY k, window_start, window_end",
        f"SELECT k, e, sum(x) FROM (SELECT k, x, unnest([{_BUCKET} + INTERVAL 60 SECOND, CASE WHEN {_HALF} = {_BUCKET} THEN"
        f" {_BUCKET} + INTERVAL 30 SECOND END]) AS e FROM given) WHERE e IS NOT NULL GROUP BY k, e",
    ),
    Kind(
        "SESSION",
        "k BIGINT, a TIMESTAMP(3), x BIGINT",
        "SELECT k, window_start AS a, sum(x) AS x FROM SESSION(TABLE given PARTITION BY k, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
        " GROUP BY k, window_start, window_end",
        "SELECT k, min(ts), sum(x) FROM (SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY ts) AS n FROM (SELECT *,"
        " coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) > INTERVAL 20 SECOND, true)::INT AS begins FROM given))"
        " GROUP BY k, n",
    ),
    Kind(
        "windows with corrections",
        "k BIGINT, e TIMESTAMP(3), x BIGINT, PRIMARY KEY (k, e) NOT ENFORCED",
        "SELECT /*+ ALLOWED_LATENESS('600 s') */ k, window_end AS e, sum(x) AS x FROM "
        f"{_WINDOWED.format('given')} GROUP BY k, window_start, window_end",
        f"SELECT k, {_BUCKET} + INTERVAL 60 SECOND, sum(x) FROM given GROUP BY ALL",
        mixed=True,
    ),
    Kind(
        "ranks in windows",
        "k BIGINT, x INT, r BIGINT",
        "SELECT k, x, r FROM (SELECT k, x, row_number() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) AS r"
        f" FROM {_WINDOWED.format('given')}) WHERE r <= 3",
        f"SELECT k, x, row_number() OVER (PARTITION BY {_BUCKET} ORDER BY x DESC) AS r FROM given QUALIFY r <= 3",
    ),
    Kind(
        "Top-N",
        "k BIGINT, x INT, r BIGINT",
        "SELECT k, x, r FROM (SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM given) WHERE r <= 3",
        doubles=False,
    ),
    Kind("DISTINCT", "k BIGINT, m INT", "SELECT DISTINCT k, x % 4 AS m FROM given", doubles=False),
    Kind("INTERSECT", "m INT", " INTERSECT ".join(_SHARED), doubles=False),
    Kind("EXCEPT", "m INT", " EXCEPT ".join(_SHARED), doubles=False),
    Kind(
        "OVER all rows so far",
        "k BIGINT, x INT, n BIGINT",
        f"SELECT k, x, sum(x) OVER {_RUN} AS n FROM given",
    ),
    Kind(
        "OVER the last rows",
        "k BIGINT, x INT, h INT",
        "SELECT k, x, max(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS h FROM given",
    ),
    Kind(
        "windows of rows",
        "k BIGINT, w BIGINT, x BIGINT",
        "SELECT k, window_id AS w, sum(x) AS x FROM TUMBLE_ROWS(TABLE given PARTITION BY k, DESCRIPTOR(ts), 3)"
        " GROUP BY k, window_id, window_start, window_end",
        "SELECT k, n // 3 + 1, sum(x) FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts) - 1 AS n FROM given)"
        " GROUP BY k, n // 3 HAVING count(*) = 3",
    ),
    Kind("join", "k BIGINT, x INT, y INT", _JOINED.format(""), doubled=_PAIRS),
    Kind("LEFT JOIN", "k BIGINT, x INT, y INT", _JOINED.format("LEFT"), doubles=False),
    Kind(
        "FULL JOIN with a time to live",
        "k BIGINT, x INT, y INT",
        _JOINED.format("FULL").replace("SELECT", f"SELECT {_TTL}"),
        _JOINED.format("FULL"),
        doubles=False,
    ),
    Kind(
        "semi-join",
        "k BIGINT, x INT",
        "SELECT k, x FROM given WHERE EXISTS (SELECT 1 FROM u WHERE u.k = given.k)",
        doubles=False,
    ),
    Kind(
        "anti-join",
        "k BIGINT, x INT",
        "SELECT k, x FROM given WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = given.k)",
        doubles=False,
    ),
    Kind(
        "interval join",
        "k BIGINT, x INT, y INT",
        f"{_JOINED.format('')} AND {_NEAR}",
        doubled=f"{_PAIRS} AND {_NEAR.replace('given', 't')}",
    ),
    Kind(
        "LEFT JOIN in an interval",
        "k BIGINT, x INT, y INT",
        f"{_JOINED.format('LEFT')} AND {_NEAR}",
        doubles=False,
    ),
    Kind(
        "join of windows",
        "k BIGINT, x INT, y INT",
        f"SELECT a.k, x, y FROM {_WINDOWED.format('given')} a JOIN {_WINDOWED.format('u')} b"
        " ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k",
        f"SELECT a.k, x, y FROM given a JOIN u b ON a.k = b.k AND {_BUCKET.replace('ts', 'a.ts')} = "
        f"{_BUCKET.replace('ts', 'b.ts')}",
        doubled=f"{_PAIRS} AND {_BUCKET.replace('ts', 't.ts')} = {_BUCKET.replace('ts', 'u.ts')}",
    ),
    Kind(
        "temporal join",
        "k BIGINT, x INT, y INT",
        "SELECT given.k, x, y FROM given LEFT JOIN v FOR SYSTEM_TIME AS OF given.ts ON given.k = v.k",
        "SELECT given.k, x, y FROM given ASOF LEFT JOIN v ON given.k = v.k AND given.ts >= v.ts",
    ),
    Kind("a table with a key", "id INT, x INT, PRIMARY KEY (id) NOT ENFORCED", "SELECT id, x FROM c", doubles=False),
    Kind(
        "GROUP BY over changes",
        "p INT, n BIGINT, x BIGINT, PRIMARY KEY (p) NOT ENFORCED",
        "SELECT p, count(*) AS n, sum(x) AS x FROM c GROUP BY p",
        doubles=False,
    ),
    Kind(
        "a process function",
        "k BIGINT, x BIGINT, n BIGINT, seen STRING",
        "SELECT k, x, n, seen FROM Summed(TABLE given PARTITION BY k ORDER BY ts)",
        f"SELECT k, sum(x) OVER {_RUN}, count(*) OVER (PARTITION BY k, x % 3 ORDER BY ts), list(x) OVER {_RUN}::VARCHAR "
        "FROM given",
        functions=(Summed,),
    ),
)


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


Row = dict[str, object]


@dataclass(frozen=True)
class Rows:
    """The rows of all tables by stage."""

    stages: Mapping[str, list[list[Row]]] = field(default_factory=dict)

    def put(self, folder: Path, tables: list[str], stage: int) -> None:
        """Write a stage of some tables into files."""
        for name in tables:
            (folder / name).mkdir(exist_ok=True)
            lines = [json.dumps(row) for row in self.stages[name][stage]]
            hidden = folder / name / f".{stage}"
            hidden.write_text("\n".join(lines))
            hidden.rename(folder / name / f"{stage}.json")


def rows_of_seed(seed: int, *, mixed: bool) -> Rows:
    """Return rows: times and numbers are there once in a table, so that nothing depends on the order of equal rows.

    In the last stage every key of `t` has a row that the changed query reads: a migration emits nothing, so only what changes
    after it shows what it has doubled.
    """
    chosen = random.Random(seed)
    found: dict[str, list[list[Row]]] = {}
    for name, count in _ROWS.items():
        value = "x" if name == "t" else "y"
        numbers = chosen.sample(range(1, 400, 2), count * STAGES)
        seconds = [
            s for stage in range(STAGES) for s in chosen.sample(range(stage * _LENGTH, (stage + 1) * _LENGTH), count)
        ]
        if mixed:
            chosen.shuffle(seconds)
        rows: list[Row] = [
            {
                "k": chosen.randrange(1, _KEYS + 1 if name == "t" else 5),
                value: number,
                "ts": f"2026-01-01 10:{s // 60:02}:{s % 60:02}",
            }
            for number, s in zip(numbers, seconds, strict=True)
        ]
        found[name] = [rows[i * count : (i + 1) * count] for i in range(STAGES)]
    read = (row for row in found["t"][-1] if int(str(row["x"])) % 5)
    for key, row in zip(range(1, _KEYS + 1), read, strict=False):
        row["k"] = key
    found["v"] = found["u"]
    found["c"] = [_changes(chosen, stage) for stage in range(STAGES)]
    return Rows(found)


def _changes(chosen: random.Random, stage: int) -> list[Row]:
    """Return changes of a stage: rows of its own come, and of those of the stage before some go and some change."""
    first = stage * 12
    rows: list[Row] = [{"op": "I", "id": first + i, "p": i % 3, "x": chosen.randrange(100)} for i in range(12)]
    if stage:
        before = range(first - 12, first)
        rows += [{"op": "U", "id": i, "p": i % 3, "x": chosen.randrange(100)} for i in before if i % 4 == 1]
        rows += [{"op": "D", "id": i, "p": i % 3, "x": 0} for i in before if i % 4 == 3]
    return rows


def answer(kind: Kind, rows: Rows, *, changed: bool, doubled: bool) -> list[tuple[object, ...]]:
    """Return DuckDB's answer, sorted: over all rows, from the last stage on without those that the `changed` query leaves out.

    If the numbers of the state were `doubled`, the rows before the last stage have other numbers.
    """
    with duckdb.connect() as con:
        for name, value in (("t", "x"), ("u", "y"), ("v", "y")):
            con.execute(f"CREATE TABLE raw_{name} (k BIGINT, {value} INT, ts TIMESTAMP, since BOOLEAN)")
            for stage, given in enumerate(rows.stages[name]):
                values = [(r["k"], r[value], r["ts"], stage == STAGES - 1) for r in given]
                con.executemany(f"INSERT INTO raw_{name} VALUES (?, ?, ?, ?)", values)
            if changed and name == "t":
                con.execute(f"DELETE FROM raw_t WHERE since AND {_LEFT_OUT}")
            factor = "CASE WHEN since THEN 1 ELSE 2 END" if doubled and kind.doubles else "1"
            con.execute(f"CREATE VIEW {name} AS SELECT * REPLACE ({value} * {factor} AS {value}) FROM raw_{name}")
        con.execute("CREATE VIEW given AS FROM t; CREATE TABLE c (id INT, p INT, x INT)")
        last: dict[object, Row] = {}
        for row in (row for stage in rows.stages["c"] for row in stage):
            last[row["id"]] = row
        left = [(r["id"], r["p"], r["x"]) for r in last.values() if r["op"] != "D"]
        con.executemany("INSERT INTO c VALUES (?, ?, ?)", left)
        sql = kind.doubled if doubled and kind.doubled else kind.answer
        return sorted(con.execute(sql).fetchall(), key=repr)
