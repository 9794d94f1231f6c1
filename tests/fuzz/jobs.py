"""A job over rows: however it is cut into batches, restarted, restored and rescaled, what it emits adds up to DuckDB's answer."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from random import Random
from tempfile import TemporaryDirectory

from sqlstream.errors import SqlStreamError, UsageError
from sqlstream.physical.batch.rows import CannotVerify
from tests.fuzz.batch import batch_answer, counted
from tests.fuzz.chains import Chains
from tests.fuzz.failures import Failure
from tests.fuzz.functions import functions_of
from tests.fuzz.queries import Queries
from tests.fuzz.tables import PLAIN, Fed, NoAnswer, Row, Types, fed, pieces, reads, statements, types
from tests.properties.model import limits
from tests.saved_streams import SavedStream

Answers = list[Counter[Row]]
# What may happen between two batches, and what happens most often.
_STEPS = ("", "", "", "wait", "restart", "rescale", "move", "save")
# Queries whose rows wait for the watermark have one of these.
_LATER = (" ts", ".ts", "window_", "DESCRIPTOR")


@dataclass(frozen=True, slots=True)
class Job:
    """Queries of one job, one for each sink, and the rows that it reads; `cuts` says what happens to it."""

    queries: tuple[str, ...]
    fed: Fed
    cuts: int
    types: Types = PLAIN
    seconds = 120

    def fails(self) -> Failure | None:
        try:
            answers = [batch_answer(sql, self.fed, self.types) for sql in self.queries]
        except NoAnswer:
            return None
        random = Random(self.cuts)
        # What is right in pieces is seldom wrong at once.
        ways = {"in pieces": list(pieces(self.fed, random)), **({} if self.cuts % 3 else {"at once": [self.fed]})}
        for way, batches in ways.items():
            try:
                history = History(self, [columns for _, columns in answers], random)
            except SqlStreamError:
                return None
            with history:
                failure = history.fails(batches, [rows for rows, _ in answers])
            if failure is not None:
                return Failure(failure.kind, f"{way}, {', '.join(history.steps)}: {failure.message}")
        return None

    def __str__(self) -> str:
        case = pformat(self, width=130)
        queries = "\n".join(f"# {line}" for sql in self.queries for line in sql.splitlines())
        return (
            f"{queries}\nfrom tests.fuzz.jobs import Job\nfrom tests.fuzz.tables import Types\n\nprint({case}.fails())"
        )


def job(random: Random) -> Job:
    """Make a job by chance: of queries of all kinds over plain columns, or of chains over columns of any type."""
    if random.random() < 0.5:
        queries = [Queries(random).query().sql for _ in range(random.choice((1, 1, 1, 2)))]
        return _job(queries, PLAIN, random)
    kinds = types(random)
    chains = [Chains(random).chain(random.choice((1, 2, 2, 3))) for _ in range(random.choice((1, 1, 2, 3)))]
    return _job(chains, kinds, random)


def _job(queries: list[str], kinds: Types, random: Random) -> Job:
    rows = {t: some if any(reads(sql, t) for sql in queries) else [] for t, some in fed(random, kinds).items()}
    return Job(tuple(queries), rows, random.randrange(1 << 30), kinds)


class History:
    """What happens to a job."""

    def __init__(self, job: Job, columns: list[str], random: Random):
        self.job, self.random, self.steps = job, random, list[str]()
        self._limits = limits(small=random.random() < 0.3)
        self._limits.__enter__()
        self._folder = TemporaryDirectory()
        options = {"sqlstream.unbounded-state": "allow", "table.local-time-zone": job.types.zone}
        if random.random() < 0.3 and not any(reads(sql, "c") for sql in job.queries):
            # So long that nothing is forgotten. Rows of c may be taken away before they come: with a time to live they are
            # taken for forgotten ones.
            options["table.exec.state.ttl"] = "1 d"
            self.steps.append("ttl")
        try:
            self.stream = SavedStream(
                _script(job, columns),
                functions=functions_of(" ".join(job.queries)),
                options=options,
                parallelism=random.randint(1, 3),
            )
        except BaseException:
            self._end()
            raise
        self.name = next(iter(self.stream.runs))

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self._end()

    def _end(self) -> None:
        self._folder.cleanup()
        self._limits.__exit__(None, None, None)

    def fails(self, batches: list[Fed], answers: Answers) -> Failure | None:
        """Run the job to its end: each sink has the answer then, and `verify` says so."""
        saved: int | None = None
        number, ran = 0, False
        while number < len(batches):
            step = self.random.choice(_STEPS) if ran else ""
            if step == "save" and saved is None:
                self.stream.savepoint(self.name, "saved", self._saved)
                saved = number
                self.steps.append(f"saved before {number}")
            else:
                self._step(step, number)
            ran |= self._feed(batches[number])
            number += 1
            if saved is not None and saved < number and self.random.random() < 0.3:
                self.stream.go_back(self.name, str(self._saved))
                self.steps.append(f"back before {number}")
                # Once: what came after the savepoint comes again.
                number, saved = saved, len(batches)
            # An aggregate of all rows has its row from the first batch on.
            if ran and self.random.random() < 0.3 and (failure := self._fails_so_far(batches[:number])):
                return failure
        self.stream.finish()
        return self._differs(answers) or self._unverified()

    @property
    def _saved(self) -> Path:
        return Path(self._folder.name, "saved")

    def _step(self, step: str, number: int) -> None:
        tasks = self.random.randint(1, 4)
        match step:
            case "wait":
                self.stream.advance(1000)
            case "restart":
                self.stream.restart()
            case "rescale":
                self.stream.restart(tasks)
            case "move":
                self.stream.move(tasks)
            case _:
                return
        self.steps.append(
            f"{step} {tasks} before {number}" if step in ("rescale", "move") else f"{step} before {number}"
        )

    def _feed(self, batch: Fed) -> bool:
        """Give a batch to the job; return whether there was anything in it."""
        scans = {scan.table.name for scan in self.stream.runs[self.name].job.plan.scans}
        given = {t: rows for t, rows in batch.items() if rows and t in scans}
        self.stream.batches(given)
        return bool(given)

    def _fails_so_far(self, batches: list[Fed]) -> Failure | None:
        """Compare what has come out with the answers over the rows so far, where nothing waits for the watermark."""
        if any(word in sql for sql in self.job.queries for word in _LATER):
            return None
        rows = {table: [row for batch in batches for row in batch[table]] for table in self.job.fed}
        try:
            answers = [batch_answer(sql, rows, self.job.types)[0] for sql in self.job.queries]
        except NoAnswer:
            return None
        return self._differs(answers)

    def _differs(self, answers: Answers) -> Failure | None:
        for number, answer in enumerate(answers):
            rows = counted(self.stream.query(f"FROM out{number}"))
            if rows != answer:
                more, less = rows - answer, answer - rows
                return Failure("answer", f"out{number}: too much {dict(more)}, missing {dict(less)}")
        return None

    def _unverified(self) -> Failure | None:
        # Some have written nothing; of others no batch says what they do.
        with suppress(CannotVerify, UsageError):
            report = self.stream.verify(self.name)
            if not report:
                return Failure("verify", f"verify: {report}")
        return None


def _script(job: Job, columns: list[str]) -> str:
    sinks = "".join(f"CREATE TABLE out{i} ({own});\n" for i, own in enumerate(columns))
    inserts = [f"INSERT INTO out{i} {sql};\n" for i, sql in enumerate(job.queries)]
    if len(inserts) == 1:
        return f"{statements(job.types)}{sinks}{inserts[0]}"
    return f"{statements(job.types)}{sinks}EXECUTE STATEMENT SET BEGIN\n{''.join(inserts)}END;"
