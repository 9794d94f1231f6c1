"""What is wrong with a text, and where: golden texts of errors."""

import textwrap

import pytest

from sqlstream.errors import ParseError, SourceText, SqlStreamError, UnsupportedError
from sqlstream.sql.statements import parse_expression, parse_script

GOLDEN = """
SELECT a, -1.5e400 FROM t
----
syntax error: the number is too large
  --> q.sql:1:12
   |
 1 | SELECT a, -1.5e400 FROM t
   |            ^^^^^^^
hint: The greatest DOUBLE is about 1.8e308. Infinity is CAST('Infinity' AS DOUBLE).
====
SELECT a, FORM t b
----
syntax error: unexpected "b"
  --> q.sql:1:18
   |
 1 | SELECT a, FORM t b
   |                  ^
====
SELECT n, at, m FROM t
----
syntax error: unexpected ","
  --> q.sql:1:13
   |
 1 | SELECT n, at, m FROM t
   |             ^
hint: "at" is a reserved word here: write it in quotes.
====
SELECT `ü` FROM t WHERE upper(at) = 'x' GROUP BY order
----
syntax error: unexpected ")"
  --> q.sql:1:33
   |
 1 | SELECT `ü` FROM t WHERE upper(at) = 'x' GROUP BY order
   |                                 ^
hint: "at" is a reserved word here: write it in quotes.
====
SELECT * FROM order
----
syntax error: unexpected "order"
  --> q.sql:1:15
   |
 1 | SELECT * FROM order
   |               ^^^^^
hint: "order" is a reserved word here: write it in quotes.
====
CREATE TABLE t (at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND)
----
syntax error: unexpected "-"
  --> q.sql:1:57
   |
 1 | CREATE TABLE t (at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND)
   |                                                         ^
hint: "at" is a reserved word here: write it in quotes.
====
SELECT a FROM t GROUP x
----
syntax error: unexpected "GROUP"
  --> q.sql:1:17
   |
 1 | SELECT a FROM t GROUP x
   |                 ^^^^^
====
SELECT a
  FROM t WHERE
----
syntax error: expected an expression, found the end of the statement
  --> q.sql:2:15
   |
 2 |   FROM t WHERE
   |               ^
====
SELECT a + FROM t; SELECT 1
----
syntax error: expected an expression, found "FROM"
  --> q.sql:1:12
   |
 1 | SELECT a + FROM t; SELECT 1
   |            ^^^^
====
SELECT count(a FROM t
----
syntax error: expected ")", found "FROM"
  --> q.sql:1:16
   |
 1 | SELECT count(a FROM t
   |                ^^^^
====
SELECT a FROM t WHERE b = 'it''s; SELECT 1
----
syntax error: the string is not closed
  --> q.sql:1:27
   |
 1 | SELECT a FROM t WHERE b = 'it''s; SELECT 1
   |                           ^
====
SELECT "a FROM t
----
syntax error: the quoted name is not closed
  --> q.sql:1:8
   |
 1 | SELECT "a FROM t
   |        ^
====
SELECT 1 /* open /* nested */ FROM t
----
syntax error: the comment is not closed
  --> q.sql:1:10
   |
 1 | SELECT 1 /* open /* nested */ FROM t
   |          ^^
====
SELECT CASE WHEN a 1 END
----
syntax error: unexpected "1"
  --> q.sql:1:20
   |
 1 | SELECT CASE WHEN a 1 END
   |                    ^
====
SELECT 'ü☃', `ü`, x IN , y
----
syntax error: unexpected ","
  --> q.sql:1:24
   |
 1 | SELECT 'ü☃', `ü`, x IN , y
   |                        ^
====
SELECT f(a,, b)
----
syntax error: unexpected ","
  --> q.sql:1:12
   |
 1 | SELECT f(a,, b)
   |            ^
====
SELECT a FROM t SETTINGS x = 1
----
syntax error: unexpected "x"
  --> q.sql:1:26
   |
 1 | SELECT a FROM t SETTINGS x = 1
   |                          ^
====
SELECT * FROM a JOIN b
----
syntax error: expected ON or USING, found the end of the statement
  --> q.sql:1:23
   |
 1 | SELECT * FROM a JOIN b
   |                       ^
====
SELECT CAST(a AS ROW<b INT) FROM t
----
syntax error: expected ">", found ")"
  --> q.sql:1:27
   |
 1 | SELECT CAST(a AS ROW<b INT) FROM t
   |                           ^
====
SELECT a FROM t WHERE x = ?
----
syntax error: expected an expression, found "?"
  --> q.sql:1:27
   |
 1 | SELECT a FROM t WHERE x = ?
   |                           ^
====
SELECT x'0g'
----
syntax error: the string holds a character that is not a digit
  --> q.sql:1:8
   |
 1 | SELECT x'0g'
   |        ^^^^^
====
SELECT {: 1}
----
syntax error: unexpected end of the statement
  --> q.sql:1:13
   |
 1 | SELECT {: 1}
   |             ^
====
SELEC a
----
syntax error: expected a statement, found "SELEC"
  --> q.sql:1:1
   |
 1 | SELEC a
   | ^^^^^
====
'SELECT' a
----
syntax error: expected a statement, found "'SELECT'"
  --> q.sql:1:1
   |
 1 | 'SELECT' a
   | ^^^^^^^^
====
CREATE TABLE (a INT)
----
syntax error: expected the name of a table, found "("
  --> q.sql:1:14
   |
 1 | CREATE TABLE (a INT)
   |              ^
====
CREATE TABLE t (a INT b INT)
----
syntax error: expected "," or ")", found "b"
  --> q.sql:1:23
   |
 1 | CREATE TABLE t (a INT b INT)
   |                       ^
====
CREATE TABLE t (a INT,)
----
syntax error: expected the name of a column, found ")"
  --> q.sql:1:23
   |
 1 | CREATE TABLE t (a INT,)
   |                       ^
====
CREATE TABLE t (a, b INT)
----
syntax error: expected a type, or AS and an expression, found ","
  --> q.sql:1:18
   |
 1 | CREATE TABLE t (a, b INT)
   |                  ^
====
CREATE TABLE t (a INT, b AS a +)
----
syntax error: expected an expression, found ")"
  --> q.sql:1:32
   |
 1 | CREATE TABLE t (a INT, b AS a +)
   |                                ^
====
CREATE TABLE t (a INT, b AS a IN)
----
syntax error: unexpected "IN"
  --> q.sql:1:31
   |
 1 | CREATE TABLE t (a INT, b AS a IN)
   |                               ^^
====
CREATE TABLE t (a INT, A BIGINT)
----
syntax error: the column "A" is given twice
  --> q.sql:1:24
   |
 1 | CREATE TABLE t (a INT, A BIGINT)
   |                        ^
====
CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a) NOT ENFORCED)
----
syntax error: a table has one primary key
  --> q.sql:1:36
   |
 1 | CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a) NOT ENFORCED)
   |                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
====
CREATE TABLE t (a INT, PRIMARY KEY (a, a))
----
syntax error: the column "a" is given twice
  --> q.sql:1:40
   |
 1 | CREATE TABLE t (a INT, PRIMARY KEY (a, a))
   |                                        ^
====
CREATE TABLE t (a INT, WATERMARK FOR a AS a, WATERMARK FOR b AS b)
----
syntax error: a table has one watermark
  --> q.sql:1:46
   |
 1 | CREATE TABLE t (a INT, WATERMARK FOR a AS a, WATERMARK FOR b AS b)
   |                                              ^^^^^^^^^^^^^^^^^^^^
====
CREATE TABLE t (a INT) WITH ('k' = 'v', 'k' = 'w')
----
syntax error: the option "k" is given twice
  --> q.sql:1:41
   |
 1 | CREATE TABLE t (a INT) WITH ('k' = 'v', 'k' = 'w')
   |                                         ^^^
====
CREATE TABLE t (a INT) WITH (k = 'v')
----
syntax error: expected an option in quotes, found "k"
  --> q.sql:1:30
   |
 1 | CREATE TABLE t (a INT) WITH (k = 'v')
   |                              ^
====
CREATE TABLE t (a INT) WITH ('k' = 1)
----
syntax error: expected a value in quotes, found "1"
  --> q.sql:1:36
   |
 1 | CREATE TABLE t (a INT) WITH ('k' = 1)
   |                                    ^
====
CREATE VIEW v SELECT 1
----
syntax error: expected AS, found "SELECT"
  --> q.sql:1:15
   |
 1 | CREATE VIEW v SELECT 1
   |               ^^^^^^
====
INSERT t SELECT 1
----
syntax error: expected INTO, found "t"
  --> q.sql:1:8
   |
 1 | INSERT t SELECT 1
   |        ^
====
INSERT INTO t (a, b SELECT 1
----
syntax error: expected "," or ")", found "SELECT"
  --> q.sql:1:21
   |
 1 | INSERT INTO t (a, b SELECT 1
   |                     ^^^^^^
====
INSERT INTO t
----
syntax error: expected a query, found the end of the statement
  --> q.sql:1:14
   |
 1 | INSERT INTO t
   |              ^
====
DROP t
----
syntax error: expected TABLE, VIEW, FUNCTION or SAVEPOINT, found "t"
  --> q.sql:1:6
   |
 1 | DROP t
   |      ^
====
SET 'k'
----
syntax error: expected "=", found the end of the statement
  --> q.sql:1:8
   |
 1 | SET 'k'
   |        ^
====
SET k =
----
syntax error: expected a value, found the end of the statement
  --> q.sql:1:8
   |
 1 | SET k =
   |        ^
====
SET a b = 1
----
syntax error: the name of an option has letters, digits, dots and dashes
  --> q.sql:1:5
   |
 1 | SET a b = 1
   |     ^^^
""".strip()


@pytest.mark.parametrize("case", GOLDEN.split("\n====\n"), ids=lambda case: case.split("\n")[0])
def test_golden_syntax_errors(case: str) -> None:
    text, expected = case.split("\n----\n")
    with pytest.raises(ParseError) as caught:
        parse_script(SourceText("q.sql", text))
    assert caught.value.render() == expected


def test_positions_count_from_the_start_of_the_file() -> None:
    script = "SELECT 1;\n\nSELECT 'é' FROM t;\n  SELECT 2 3"
    with pytest.raises(ParseError) as caught:
        parse_script(SourceText("dir/q.sql", script))
    assert caught.value.render() == textwrap.dedent("""\
        syntax error: unexpected "3"
          --> dir/q.sql:4:12
           |
         4 |   SELECT 2 3
           |            ^""")


def test_expressions_alone() -> None:
    with pytest.raises(ParseError, match='unexpected "b"'):
        parse_expression(SourceText("e", "a b"))
    with pytest.raises(ParseError, match="expected an expression, found the end of the statement"):
        parse_expression(SourceText("e", ""))


def test_deep_nesting_is_an_error_of_its_own() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        parse_script(SourceText("q", f"SELECT {'(' * 5000}1{')' * 5000}"))


SEEDS = [
    "CREATE TABLE t (a ROW<b INT>, c AS f(a, x -> x), WATERMARK FOR ts AS ts - INTERVAL '1' DAY) WITH ('k' = 'v')",
    "INSERT INTO t (a) SELECT CASE WHEN a THEN {'b': [1]} END, CAST(a AS MAP<INT, INT>) FROM t JOIN u USING (k)",
    "SELECT sum(a) FILTER (WHERE b) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '2' DAY)) AS w",
]


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_text_is_never_anything_but_our_error(seed: str) -> None:
    words = seed.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    damaged = [words[:i] + words[i + 1 :] for i in range(len(words))]
    damaged += [words[:i] for i in range(len(words))]
    damaged += [[*words[:i], extra, *words[i:]] for i in range(len(words)) for extra in (",", "(", "AS", "'", "NULL")]
    errors = [error for words in damaged if (error := error_of(" ".join(words)))]
    assert len(errors) > len(damaged) / 2
    assert all(isinstance(error, ParseError | UnsupportedError) and error.span for error in errors)


def error_of(text: str) -> SqlStreamError | None:
    try:
        parse_script(SourceText("q", text))
    except SqlStreamError as error:
        return error
    return None
