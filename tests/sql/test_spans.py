"""Every node of a tree knows which words it was read from."""

import pytest
from sqlglot import exp

from sqlstream.errors import SourceText
from sqlstream.sql.nodes import CreateTable, CreateView, Drop, Insert, Select, SetOption
from sqlstream.sql.spans import name_span, span_of
from sqlstream.sql.statements import parse_expression, parse_script
from tests.kinds import of_type

EXPRESSIONS = """
a
"Q x"
`b``c`
t.b
s.f.g.h
'it''s'
'naïve ☃'
.5
1e3
TRUE
NULL
-x
- (x + 1)
NOT a = b
(x + 1) * 2
a || b || c
COUNT(*)
COUNT(DISTINCT a)
f()
f(a, g(b))
f(x).y
string_agg(x, ',' ORDER BY y DESC)
SUM(a) FILTER (WHERE a > 1)
SUM(DISTINCT a ORDER BY b) FILTER (WHERE a > 1) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
percentile_cont(0.5) WITHIN GROUP (ORDER BY x)
CASE WHEN a THEN 'x' WHEN b THEN 'y' ELSE NULL END
CASE a WHEN 1 THEN 2 END
CAST(a AS ROW<x INT, y ARRAY<STRING>>)
TRY_CAST(a AS INT)
b::INT[]::TEXT
DATE '2024-01-01'
TIMESTAMP WITH TIME ZONE '2024-01-01'
INTERVAL '5' SECOND
INTERVAL (x + 1) DAYS
EXTRACT(YEAR FROM ts)
SUBSTRING(a FROM 1 FOR 2)
[1, 2]
[x + 1 FOR x IN l IF x > 1]
{'a': 1, 'b': [2]}
MAP {'a': 1}
MAP['a', 1]
arr[1]
arr[1:2]
(a, b)
a IS NOT NULL
a IS DISTINCT FROM b
a BETWEEN 1 AND 2
a IN (1, 2)
a IN (SELECT 1)
a LIKE 'x%' ESCAPE '!'
EXISTS (SELECT 1)
(SELECT max(b) FROM u)
list_transform(l, x -> x + 1)
list_transform(l, lambda x, i: x + i)
CURRENT_TIMESTAMP
a AT TIME ZONE 'UTC'
j -> 'a' ->> '$.b'
x COLLATE NOCASE
a AND (b OR NOT c)
""".strip().split("\n")


def select(source: SourceText) -> exp.Query:
    [statement] = parse_script(source)
    return of_type(Select, statement).query


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_covers_its_words(text: str) -> None:
    source = SourceText("q", f"SELECT 1,\n  {text} , 2")
    assert span_of(select(source).expressions[1], source).text == text
    alone = SourceText("e", f"  {text} ")
    assert span_of(parse_expression(alone), alone).text == text


# Each row is a type of node and the words of the nodes of that type, in order, in the query below.
QUERY = """WITH c (k) AS (SELECT 1)
SELECT a.x AS y, f(b) + 1, * EXCLUDE (q)
FROM db1 AS a (p, q)
LEFT JOIN (SELECT g(z)) AS sub ON a.x = sub.y
CROSS JOIN TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) AS w
WHERE NOT d
GROUP BY a.x, ROLLUP (e)
HAVING count(*) > 1
ORDER BY y DESC, 2
LIMIT 10 OFFSET 2"""
NODES = [
    (exp.CTE, ["c (k) AS (SELECT 1)"]),
    (exp.With, ["WITH c (k) AS (SELECT 1)"]),
    (exp.Alias, ["a.x AS y"]),
    (exp.Add, ["f(b) + 1"]),
    (exp.Star, ["* EXCLUDE (q)", "*"]),
    (exp.Table, ["db1 AS a (p, q)", "bid"]),
    (exp.TableAlias, ["c (k)", "AS a (p, q)", "AS sub", "AS w"]),
    (exp.Subquery, ["(SELECT g(z)) AS sub"]),
    (exp.Interval, ["INTERVAL '10' MINUTES"]),
    (exp.Where, ["WHERE NOT d"]),
    (exp.Group, ["GROUP BY a.x, ROLLUP (e)"]),
    (exp.Having, ["HAVING count(*) > 1"]),
    (exp.Order, ["ORDER BY y DESC, 2"]),
    (exp.Ordered, ["y DESC", "2"]),
    (exp.Limit, ["LIMIT 10"]),
    (exp.Offset, ["OFFSET 2"]),
    (exp.Anonymous, ["f(b)", "g(z)", "count(*)"]),
    (exp.Join, ["LEFT JOIN (SELECT g(z)) AS sub ON a.x = sub.y", QUERY.split("\n")[4]]),
]


@pytest.mark.parametrize(("kind", "words"), NODES, ids=lambda value: getattr(value, "__name__", ""))
def test_parts_of_a_query(kind: type[exp.Expression], words: list[str]) -> None:
    source = SourceText("q", QUERY)
    query = select(source)
    found = [span_of(node, source) for node in query.find_all(kind)]
    assert [span.text for span in sorted(found, key=lambda span: span.start)] == words
    assert span_of(query, source).text == QUERY


def test_every_node_has_a_place() -> None:
    source = SourceText("q", QUERY)
    unplaced = {type(node) for node in select(source).walk() if span_of(node, source).end == 0}
    assert unplaced <= {exp.Var}


def test_places_survive_a_copy_and_made_up_nodes_have_the_default() -> None:
    source = SourceText("q", "SELECT f(a)")
    [statement] = parse_script(source)
    call = of_type(Select, statement).query.copy().expressions[0]
    assert span_of(call, source).text == "f(a)"
    assert span_of(exp.column("made_up"), source, statement.span) == statement.span


@pytest.mark.parametrize("text", ["foo(1)", '"foo"(1)', "foo ( DISTINCT a )", "foo(1) FILTER (WHERE x)"])
def test_name_of_a_function(text: str) -> None:
    source = SourceText("e", f"1 + {text}")
    call = of_type(exp.Anonymous, parse_expression(source).find(exp.Anonymous))
    assert name_span(call, source).text.strip('"') == "foo"


def test_statements_cover_their_words() -> None:
    script = """
      CREATE TABLE t (
        `a b` ROW<x INT> NOT NULL COMMENT 'c',
        d AS f(e) + 1 COMMENT 'x',
        WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
        PRIMARY KEY (`a b`) NOT ENFORCED
      ) WITH ('k' = 'v');
      INSERT INTO sink (p, q) SELECT 1, 2;
      SET 'a.b' = 'c';
      SET a.b = 1 min;
      DROP VIEW IF EXISTS v;
      CREATE VIEW v (m) AS SELECT 1
    """
    statements = parse_script(SourceText("s", script))
    assert [s.span.text for s in statements] == [text.strip() for text in script.split(";")]
    create, insert = of_type(CreateTable, statements[0]), of_type(Insert, statements[1])
    quoted, plain = of_type(SetOption, statements[2]), of_type(SetOption, statements[3])
    drop, view = of_type(Drop, statements[4]), of_type(CreateView, statements[5])
    assert create.columns[1].expression
    assert create.watermark
    assert insert.columns
    assert quoted.value
    assert plain.value
    assert [c.span.text for c in create.columns] == [
        "`a b` ROW<x INT> NOT NULL COMMENT 'c'",
        "d AS f(e) + 1 COMMENT 'x'",
    ]
    assert [c.name.span.text for c in create.columns] == ["`a b`", "d"]
    assert create.columns[0].type_span is not None
    assert create.columns[0].type_span.text == "ROW<x INT>"
    assert span_of(create.columns[1].expression, create.span.source).text == "f(e) + 1"
    assert create.watermark.span.text == "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    assert create.watermark.column.span.text == "ts"
    assert [key.span.text for key in create.primary_key] == ["`a b`"]
    assert create.options["k"].key_span is not None
    assert (create.options["k"].key_span.text, create.options["k"].span.text) == ("'k'", "'v'")
    assert (insert.target.span.text, [c.span.text for c in insert.columns]) == ("sink", ["p", "q"])
    assert (quoted.key.span.text, quoted.value.span.text) == ("'a.b'", "'c'")
    assert (plain.key.span.text, plain.value.span.text) == ("a.b", "1 min")
    assert (drop.name.span.text, view.name.span.text, view.columns[0].span.text) == ("v", "v", "m")
