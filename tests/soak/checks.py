"""Queries whose answer is 0 at every version, live or old: the number of rows of state and results that contradict each other.

They take a version of the jobs: a committed batch as a whole, state and results. The generator's files have a fixed number of
rows, and a batch reads whole files, so half a batch would show, too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# Old, and retained for as long as the query takes: a hundred versions always are. The first that sqlstream.snapshots lists may go
# meanwhile.
_MIDDLE = "(SELECT greatest(min(version), max(version) - 50) FROM sqlstream.snapshots WHERE job = '{job}')"


@dataclass(frozen=True, slots=True)
class Check:
    """A query with `{at}` after the names of what it reads of one job."""

    name: str
    job: str
    sql: str

    def live(self) -> str:
        return self.sql.format(at="")

    def old(self) -> str:
        """Return the query as of the version that is fifty batches old."""
        return self.sql.format(at=f"AT (VERSION => {_MIDDLE.format(job=self.job)})")


def checks(rows_of_a_file: int) -> tuple[Check, ...]:
    """Return the checks, for files of so many orders."""
    return (
        Check(
            "whole batches in windows",
            "sales",
            f"""SELECT ((SELECT coalesce(sum(n), 0) FROM sales {{at}})
                + (SELECT coalesce(sum(n), 0) FROM state.sales.by_window {{at}}))::BIGINT % {rows_of_a_file}""",
        ),
        Check(
            "windows that are open and closed",
            "sales",
            """SELECT count(*) FROM sales {at} AS r JOIN state.sales.by_window {at} AS s
                ON r.shop = s.shop AND r.begun = s.window_start""",
        ),
        Check(
            "orders that were matched twice",
            "matches",
            "SELECT count(*) - count(DISTINCT id) FROM matches {at}",
        ),
        Check(
            "whole batches in totals",
            "ranks",
            f"SELECT coalesce(sum(n), 0)::BIGINT % {rows_of_a_file} FROM state.ranks.totals {{at}}",
        ),
        Check(
            "ranks that are not those of the totals",
            "ranks",
            """WITH best AS (
                SELECT shop, customer, total, row_number() OVER (PARTITION BY shop ORDER BY total DESC, customer) AS place
                FROM state.ranks.totals {at} QUALIFY place <= 3
            ), written AS (SELECT shop, customer, total, place FROM ranks {at})
            SELECT (SELECT count(*) FROM (FROM best EXCEPT ALL FROM written))
                + (SELECT count(*) FROM (FROM written EXCEPT ALL FROM best))""",
        ),
    )


def chosen(among: tuple[Check, ...], chance: random.Random) -> tuple[Check, str, str]:
    """Return a check, its query, and whether it is `live` or `old`."""
    check = chance.choice(among)
    return (check, check.old(), "old") if chance.random() < 0.5 else (check, check.live(), "live")
