"""Texts to compile: the SQL of the golden scripts, the manual and the examples, cut up and put together again."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\w+|\s+|--[^\n]*|[^\w\s]")
_SQL_VERBS = re.compile(r"^(?:statement|query|explain \w+|error(?: query)?)$", re.MULTILINE)
# What no text has enough of.
_LINES = """
SELECT  FROM  WHERE  GROUP BY  ORDER BY  OVER  PARTITION BY  DISTINCT  NULL  *  (  )  ,  .  LIST  ARRAY  MAP  ROW  STRUCT
[  ]  {  }  ::  ->  CASE  WHEN  END  NOT  -  b'1'  x'0g'  INTERVAL '1' SECOND  TUMBLE  HOP  DESCRIPTOR  UNNEST  LATERAL  FILTER
WITH  AS  0  -1  1e999  ''  CUBE  ROLLUP  IN  EXISTS  BETWEEN  LIMIT  UNION ALL  EXCEPT  JOIN  LEFT  FULL  ON  USING  $$
999999999999999999999999  'é'  é  "  '  `  ;  /*+  /*  --  @  :  ?  \
"""
_WORDS = re.split(r"\s{2,}|\n", _LINES.strip())


@cache
def corpus() -> tuple[tuple[str, str], ...]:
    """Return texts, each with the statements that must come before it."""
    found: list[tuple[str, str]] = []
    for path in sorted((ROOT / "tests" / "slt").glob("*.slt")):
        cases = re.split(r"^case .*$", path.read_text(), flags=re.MULTILINE)
        prelude = ";\n".join(_statements(cases[0], "statement"))
        for case in cases[1:]:
            before = prelude
            for sql in _statements(case):
                found.append((before, sql))
                if sql.lstrip().upper().startswith("CREATE"):
                    before = f"{before};\n{sql}"
    for path in (ROOT / "README.md", *sorted((ROOT / "sqlstream" / "docs").rglob("*.md"))):
        before = ""
        for sql in re.findall(r"^```sql\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            found.append((before, sql))
            before += sql
    texts = [p.read_text() for p in sorted((ROOT / "examples").rglob("*.sql"))]
    return (*found, *(("", text) for text in texts))


def _statements(text: str, verb: str | None = None) -> list[str]:
    found = []
    for record in re.split(r"\n\s*\n", text):
        lines = [line for line in record.strip().splitlines() if not line.startswith("# ")]
        if len(lines) > 1 and _SQL_VERBS.match(lines[0]) and verb in (None, lines[0]):
            found.append("\n".join(lines[1:]).partition("\n----")[0])
    return found


def tokens(text: str) -> list[str]:
    """Split a text where it can be cut."""
    return _TOKEN.findall(text)


def mutated(random: Random) -> tuple[str, str]:
    """Return a text that nobody wrote, with the statements before it."""
    before, text = random.choice(corpus())
    parts = tokens(text)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        parts = _changed(parts, random)
    return before, "".join(parts)


def _changed(parts: list[str], random: Random) -> list[str]:
    other = tokens(random.choice(corpus())[1])
    if not parts or not other:
        return other
    at = random.randrange(len(parts))
    end = min(len(parts), at + random.choice((1, 2, 3, 8)))
    start = random.randrange(len(other))
    piece = other[start : start + random.choice((1, 2, 3, 8, 30))]
    match random.randrange(9):
        case 0:
            return parts[:at] + parts[end:]
        case 1:
            return [*parts[:at], " ", random.choice(_WORDS), " ", *parts[end:]]
        case 2:
            return [*parts[:at], " ", random.choice(_WORDS), " ", *parts[at:]]
        case 3:
            return parts[:at] + piece + parts[end:]
        case 4:
            return [*parts[:at], " ", *piece, " ", *parts[at:]]
        case 5:
            return parts[:at] + parts[at:end] * random.choice((2, 2, 2, 40)) + parts[end:]
        case 6:
            return [*parts[:at], "(", *parts[at:end], ")", *parts[end:]]
        case 7:
            return parts[:at] + other[start:]
        case _:
            to = random.randrange(len(parts))
            parts = list(parts)
            parts[at], parts[to] = parts[to], parts[at]
            return parts
