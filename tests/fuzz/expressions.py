"""Expressions over typed columns, made by chance."""

from __future__ import annotations

from random import Random

Columns = dict[str, str]


class Expressions:
    """Makes expressions by chance."""

    def __init__(self, random: Random):
        self.random = random

    def one_of(self, *choices: str) -> str:
        return self.random.choice(choices)

    def value(self, kind: str, columns: Columns, depth: int = 2) -> str:
        """Return an expression of a type."""
        own = [name for name, type in columns.items() if type == kind]
        if own and self.random.random() < (0.5 if depth else 0.9):
            return self.random.choice(own)
        if depth == 0:
            return {"BIGINT": self.one_of("1", "0", "7"), "VARCHAR": self.one_of("'a'", "''"), "BOOLEAN": "true"}[kind]

        def part(kind: str) -> str:
            return self.value(kind, columns, depth - 1)

        a, b = part(kind), part(kind)
        if kind == "BOOLEAN":
            return f"({self.condition(columns, depth - 1)})"
        if kind == "BIGINT":
            lists = [name for name, type in columns.items() if type == "BIGINT[]"]
            some = [
                f"({a} + {b})",
                f"({a} - {b})",
                f"({a} * 2)",
                f"ABS({a})",
                f"COALESCE({a}, {b})",
                f"NULLIF({a}, {b})",
            ]
            some += [
                f"CASE WHEN {self.condition(columns, 0)} THEN {a} ELSE {b} END",
                f"CAST(LENGTH({part('VARCHAR')}) AS BIGINT)",
            ]
            some += (
                [f"{name}[1]" for name in lists]
                + [f"LEN({name})" for name in lists]
                + [f"TRY_CAST({part('VARCHAR')} AS BIGINT)"]
            )
        else:
            some = [
                f"({a} || {b})",
                f"UPPER({a})",
                f"SUBSTRING({a}, 1, 1)",
                f"COALESCE({a}, {b})",
                f"CAST({part('BIGINT')} AS VARCHAR)",
            ]
            some += [f"CASE WHEN {self.condition(columns, 0)} THEN {a} ELSE {b} END"]
        return self.random.choice(some)

    def condition(self, columns: Columns, depth: int = 1) -> str:
        kind = self.one_of("BIGINT", "VARCHAR")
        a, b = self.value(kind, columns, depth), self.value(kind, columns, depth)
        some = [f"{a} {self.one_of('<', '<=', '=', '<>', '>')} {b}", f"{a} IS NULL", f"{a} IS NOT DISTINCT FROM {b}"]
        some += [f"{a} IN ({b}, {a})", f"{a} BETWEEN {b} AND {a}"]
        if kind == "VARCHAR":
            some.append(f"{a} LIKE '%a%'")
        if depth:
            some += [f"({self.condition(columns, 0)} {self.one_of('AND', 'OR')} {self.condition(columns, 0)})"]
            some.append(f"NOT ({self.condition(columns, 0)})")
        return self.random.choice(some)

    def aggregate(self, columns: Columns) -> tuple[str, str]:
        x, s = self.value("BIGINT", columns, 1), self.value("VARCHAR", columns, 1)
        test = self.condition(columns, 0)
        calls = {
            "BIGINT": [
                "COUNT(*)",
                f"COUNT({x})",
                f"CAST(SUM({x}) AS BIGINT)",
                f"CAST(SUM(DISTINCT {x}) AS BIGINT)",
                f"MIN({x})",
            ],
            "VARCHAR": [
                f"MAX({s})",
                f"STRING_AGG({s}, ',' ORDER BY {s})",
                f"STRING_AGG(DISTINCT {s}, '' ORDER BY {s} DESC)",
            ],
            "DOUBLE": [f"AVG({x})", f"MEDIAN({x})", f"VAR_POP({x})"],
            "BIGINT[]": [f"LIST({x} ORDER BY {x})"],
            "BOOLEAN": [f"BOOL_OR({test})"],
        }
        calls["BIGINT"] += [
            f"COUNT(DISTINCT {s})",
            f"COUNT(*) FILTER (WHERE {test})",
            f"BIT_XOR({x})",
            f"MAX_BY({x}, {x})",
        ]
        return self.random.choice([(call, kind) for kind, some in calls.items() for call in some])
