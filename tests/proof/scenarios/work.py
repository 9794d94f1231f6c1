"""What the jobs of the scenarios read, compute and must have written, by DuckDB over all rows at once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

Row = dict[str, Any]
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_ROWS = 20
_KEYS = 8
_FILES = "WITH ('connector' = 'filesystem', 'path' = 'in/{name}', 'format' = 'json', 'source.max-files-per-batch' = '1'{more})"
_OP = ", 'changelog.op-column' = 'op'"
# Rows of a file are in any order, and those of two files are not: none is late.
_EVENTS = (
    "CREATE TABLE t (id BIGINT, k BIGINT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '12' SECOND) "
)
EVENTS = f"{_EVENTS}{_FILES.format(name='t', more='')};\n"
_ITEMS = "CREATE TABLE c (op STRING, id BIGINT, p BIGINT, x BIGINT, PRIMARY KEY (id) NOT ENFORCED) "
_GROUPS = "CREATE TABLE d (op STRING, p BIGINT, g BIGINT, PRIMARY KEY (p) NOT ENFORCED) "
_NEWEST = "SELECT * FROM raw_{0} QUALIFY row_number() OVER (PARTITION BY {1} ORDER BY number DESC) = 1"


@dataclass(frozen=True)
class Work:
    """A job: its script, what it reads, and for each table that it writes the query of its rows and DuckDB's answer.

    `{out}` in the script is the table that it writes; it is `out`, or in a fork another one.
    """

    script: str
    results: Mapping[str, str]
    reads: Sequence[str] = ("t",)
    function: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def text(self, out: str = "out", form: str = "") -> str:
        """Return the SQL of the job; `form` stands where the query may change, and means the same."""
        sets = "".join(f"SET '{name}' = '{value}';\n" for name, value in self.options.items())
        head = "SET 'pipeline.name' = 'job';\nSET 'sqlstream.unbounded-state' = 'allow';\nSET 'parallelism.default' = '2';\n"
        return head + sets + self.script.replace("{out}", out).replace("{form}", form)


class Rows:
    """Writes files of rows, and remembers what it has written."""

    def __init__(self, folder: Path, reads: Sequence[str], seed: object):
        self.folder, self.reads, self.files = folder, reads, 0
        self.chance = random.Random(str(seed))
        self.rows: dict[str, list[Row]] = {name: [] for name in reads}
        self._newest: dict[str, dict[int, Row]] = {"c": {}, "d": {}}
        for name in reads:
            (folder / name).mkdir(parents=True)

    @property
    def count(self) -> int:
        return sum(map(len, self.rows.values()))

    def put(self, files: int = 1) -> None:
        """Write so many further files of each table."""
        for _ in range(files):
            for name in self.reads:
                rows = list({"t": self._events, "c": self._items, "d": self._groups}[name]())
                self.rows[name] += rows
                hidden = self.folder / name / ".next"
                hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
                hidden.rename(self.folder / name / f"{self.files:06}.json")
            self.files += 1

    def _events(self) -> Iterator[Row]:
        """Yield rows half a second apart; milliseconds see to it that no two are a whole number of seconds apart."""
        numbers = [*range(self.files * _ROWS, (self.files + 1) * _ROWS)]
        self.chance.shuffle(numbers)
        for number in numbers:
            ts = _BEGIN + timedelta(milliseconds=500 * number + number % 499)
            key = self.chance.randrange(_KEYS) ** 2 // _KEYS
            yield {"id": number, "k": key, "x": self.chance.randint(1, 1000), "ts": f"{ts:%Y-%m-%d %H:%M:%S.%f}"[:-3]}

    def _items(self) -> Iterator[Row]:
        for _ in range(_ROWS):
            id = self.chance.randrange(120)
            yield self._change("c", id, {"id": id, "p": self.chance.randrange(12), "x": self.chance.randrange(10_000)})

    def _groups(self) -> Iterator[Row]:
        for _ in range(3):
            p = self.chance.randrange(12)
            yield self._change("d", p, {"p": p, "g": self.chance.randrange(3)})

    def _change(self, table: str, key: int, row: Row) -> Row:
        there = self._newest[table]
        if key not in there:
            there[key] = {"op": "I", **row}
            return there[key]
        if self.chance.random() < 0.25:
            return {**there.pop(key), "op": "D"}
        there[key] = {"op": "U", **row}
        return there[key]

    def answers(self, work: Work) -> dict[str, list[tuple[Any, ...]]]:
        """Return what the job must have written when it has read all, by the queries of its rows."""
        with duckdb.connect() as con:
            for name, rows in self.rows.items():
                text = self.folder / f".{name}"
                text.write_text("".join(json.dumps({"number": i, **row}) + "\n" for i, row in enumerate(rows)))
                con.execute(f"CREATE TABLE raw_{name} AS FROM read_json('{text}', format = 'newline_delimited')")
            for name, key in {"c": "id", "d": "p"}.items():
                if name in self.rows:
                    con.execute(f"CREATE VIEW {name} AS FROM ({_NEWEST.format(name, key)}) WHERE op <> 'D'")
            if "t" in self.rows:
                con.execute("CREATE VIEW t AS SELECT * REPLACE (ts::TIMESTAMP AS ts) FROM raw_t")
            return {shown: con.execute(f"FROM ({sql}) ORDER BY ALL").fetchall() for shown, sql in work.results.items()}


_RANKED = "ROW_NUMBER() OVER (PARTITION BY g ORDER BY x DESC, p) AS place"
_TOTALS = "SELECT d.g, c.p, COUNT(*) AS n, CAST(SUM(c.x) AS BIGINT) AS x FROM c JOIN d ON c.p = d.p GROUP BY d.g, c.p"
CHANGES = Work(
    f"""{_ITEMS}{_FILES.format(name="c", more=_OP)};
{_GROUPS}{_FILES.format(name="d", more=_OP)};
CREATE TABLE {{out}} (g BIGINT, p BIGINT, n BIGINT, x BIGINT, place BIGINT, PRIMARY KEY (g, p) NOT ENFORCED);
INSERT INTO {{out}}
WITH totals AS ({_TOTALS}), best AS (SELECT g, p, n, x, {_RANKED} FROM totals)
SELECT g, p, n, x, place FROM best WHERE place <= 3;
""",
    {"SELECT g, p, n, x, place FROM {out}": f"SELECT g, p, n, x, {_RANKED} FROM ({_TOTALS}) QUALIFY place <= 3"},
    ("c", "d"),
)
_FUNCTION = '''
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from sqlstream import Context, ListState, Row, SideOutput, ValueState, process, side_output, state


@dataclass
class Visit:
    n: int
    x: int
    ids: str


@dataclass
class Seventh:
    id: int
    visits: int


@process
class Visits:
    """Adds up the rows of a key until none has come for twenty seconds; numbers that seven divides go elsewhere."""

    sevenths: SideOutput[Seventh] = side_output()
    x: ValueState[int] = state()
    ids: ListState[int] = state()
    ended: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> None:
        if row.x % 7 == 0:
            ctx.emit("sevenths", Seventh(row.id, self.ended.value or 0))
            return
        self.x.value = (self.x.value or 0) + row.x
        self.ids.append(row.id)
        ctx.timers.at(ctx.event_time + timedelta(seconds=4), "end")

    def on_timer(self, ctx: Context) -> Iterator[Visit]:
        ids = self.ids.get()
        yield Visit(len(ids), self.x.value, ",".join(map(str, ids)))
        self.x.clear()
        self.ids.clear()
        self.ended.value = (self.ended.value or 0) + 1
'''
_VISITS = """WITH begun AS (
    SELECT *, coalesce(ts - lag(ts) OVER w > INTERVAL 4 SECOND, true)::INT AS begins
    FROM t WHERE x % 7 <> 0 WINDOW w AS (PARTITION BY k ORDER BY ts)
), numbered AS (SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY ts) AS visit FROM begun),
visits AS (
    SELECT k, count(*) AS n, sum(x)::BIGINT AS x, string_agg(id, ',' ORDER BY ts) AS ids,
        max(ts) + INTERVAL 4 SECOND AS ended FROM numbered GROUP BY k, visit
) """
FUNCTION = Work(
    f"""{EVENTS}CREATE TABLE {{out}} (k BIGINT, n BIGINT, x BIGINT, ids STRING, ended TIMESTAMP(3));
CREATE TABLE {{out}}_sevenths (k BIGINT, id BIGINT, visits BIGINT, ts TIMESTAMP(3));
CREATE VIEW visited AS SELECT * FROM visits(TABLE t PARTITION BY k ORDER BY ts, on_time => DESCRIPTOR(ts));
EXECUTE STATEMENT SET BEGIN
INSERT INTO {{out}} SELECT k, n, x, ids, rowtime FROM visited;
INSERT INTO {{out}}_sevenths SELECT * FROM SIDE_OUTPUT(TABLE visited, 'sevenths');
END;
""",
    {
        "SELECT k, n, x, ids, ended FROM {out}": _VISITS + "SELECT * FROM visits",
        "SELECT k, id, visits, ts FROM {out}_sevenths": _VISITS
        + "SELECT k, id, (SELECT count(*) FROM visits v WHERE v.k = t.k AND v.ended < t.ts), ts FROM t WHERE x % 7 = 0",
    },
    function=_FUNCTION,
)
_WINDOW = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
WINDOWS = Work(
    f"""{EVENTS}CREATE TABLE {{out}} (k BIGINT, begun TIMESTAMP(3), n BIGINT, x BIGINT);
INSERT INTO {{out}} WITH w AS (SELECT k, window_start AS begun, COUNT(*) AS n, CAST(SUM(x) AS BIGINT) AS x
    FROM {_WINDOW} GROUP BY k, window_start, window_end)
SELECT k, begun, n, x{{form}} AS x FROM w;
""",
    {
        "SELECT k, begun, n, x FROM {out}": "SELECT k, time_bucket(INTERVAL 10 SECOND, ts), count(*),"
        " sum(x)::BIGINT FROM t GROUP BY ALL"
    },
)
_STORED = """CREATE TABLE {0}_rows (id BIGINT, x BIGINT) WITH ('connector' = '{0}', 'path' = 'out.{0}', 'table' = 'rows',
    'sink.create-table' = 'true');
CREATE TABLE {0}_counts (k BIGINT, n BIGINT, x BIGINT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = '{0}', 'path' = 'out.{0}', 'table' = 'counts', 'sink.create-table' = 'true');
"""
_STORE = """INSERT INTO {0}_rows SELECT id, x FROM t;
INSERT INTO {0}_counts SELECT k, COUNT(*), CAST(SUM(x) AS BIGINT) FROM t GROUP BY k HAVING SUM(x) % 3 > 0;
"""
_COUNTS = "SELECT k, count(*), sum(x)::BIGINT FROM t GROUP BY k HAVING sum(x) % 3 > 0"


def stored(database: str) -> Work:
    """Return the work that writes rows, and counts that change, into files of a database."""
    inserts = f"EXECUTE STATEMENT SET BEGIN\n{_STORE.format(database)}END;\n"
    results = {"SELECT id, x FROM db.rows": "SELECT id, x FROM t", "SELECT k, n, x FROM db.counts": _COUNTS}
    return Work(EVENTS + _STORED.format(database) + inserts, results)


# All rows of a second have one time, and `id` is a number by chance within a file: the order of arrival decides.
_TIES = EVENTS.replace("ts TIMESTAMP(3),", "ts TIMESTAMP(3), p AS PROCTIME(), second AS date_trunc('second', ts),")
_LATEST = "row_number() OVER (PARTITION BY k ORDER BY date_trunc('second', ts) DESC, number DESC) = 1"
ARRIVAL = Work(
    f"""{_TIES}CREATE TABLE {{out}} (k BIGINT, id BIGINT);
CREATE TABLE {{out}}_latest (k BIGINT, id BIGINT);
CREATE TABLE {{out}}_ends (k BIGINT, first BIGINT, last BIGINT, ids STRING);
CREATE TABLE {{out}}_windows (k BIGINT, first BIGINT, last BIGINT, ids STRING);
CREATE TABLE {{out}}_before (id BIGINT, before BIGINT);
EXECUTE STATEMENT SET BEGIN
INSERT INTO {{out}} SELECT k, id FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) = 1;
INSERT INTO {{out}}_latest SELECT k, id FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY second DESC, p DESC) = 1;
INSERT INTO {{out}}_ends SELECT k, FIRST_VALUE(id), LAST_VALUE(id), LISTAGG(id) FROM t GROUP BY k;
INSERT INTO {{out}}_windows SELECT k, FIRST_VALUE(id), LAST_VALUE(id), LISTAGG(id) FROM {_WINDOW}
    GROUP BY k, window_start, window_end;
INSERT INTO {{out}}_before SELECT id, LAG(id) OVER (PARTITION BY k ORDER BY p) FROM t;
END;
""",
    {
        "SELECT k, id FROM {out}": "SELECT k, last(id ORDER BY number) FROM raw_t GROUP BY k",
        "SELECT k, id FROM {out}_latest": f"SELECT k, id FROM raw_t QUALIFY {_LATEST.replace('ts', 'ts::TIMESTAMP')}",
        "SELECT k, first, last, ids FROM {out}_ends": "SELECT k, first(id ORDER BY number), last(id ORDER BY number),"
        " string_agg(id, ',' ORDER BY number) FROM raw_t GROUP BY k",
        "SELECT k, first, last, ids FROM {out}_windows": "SELECT k, first(id ORDER BY number), last(id ORDER BY number),"
        " string_agg(id, ',' ORDER BY number) FROM raw_t GROUP BY k, time_bucket(INTERVAL 10 SECOND, ts::TIMESTAMP)",
        "SELECT id, before FROM {out}_before": "SELECT id, lag(id) OVER (PARTITION BY k ORDER BY number) FROM raw_t",
    },
)
_NO_EVENTS = EVENTS.replace(", WATERMARK FOR ts AS ts - INTERVAL '12' SECOND", ", at AS PROCTIME()")
_SUMS = "SELECT sum(n)::BIGINT, sum(x)::BIGINT, count(*) - count(DISTINCT begun) FROM {out}"
PROCESSING_TIME = Work(
    f"""{_NO_EVENTS}CREATE TABLE {{out}} (begun TIMESTAMP(3), n BIGINT, x BIGINT);
INSERT INTO {{out}} SELECT window_start, COUNT(*), CAST(SUM(x) AS BIGINT)
    FROM TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' SECOND) GROUP BY window_start, window_end;
""",
    {_SUMS: "SELECT count(*), sum(x)::BIGINT, 0 FROM t"},
)
