"""Runs clients' queries over PostgreSQL's catalog, about tables and types, in a separate DuckDB database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlstream.duck.sql import quote_text
from sqlstream.errors import QueryError, SourceText
from sqlstream.queries.statement import tokenize
from sqlstream.server.listed_tables import ListedTable
from sqlstream.server.postgres.catalog_tables import definitions, function_names, relation_names, rows
from sqlstream.server.postgres.session import VERSION, ClientSession

_SCHEMAS = ("pg_catalog", "information_schema")
# The catalog of a client is small; its queries must not use the memory of others.
_CONFIG: dict[str, bool | int | float | str | list[str]] = {
    "threads": 1,
    "memory_limit": "512MB",
    "max_temp_directory_size": "0KB",
    "python_enable_replacements": "false",
    "enable_external_access": "false",
}
_RELATIONS = relation_names()
_FUNCTIONS = function_names() | {"current_setting", "set_config", "current_user", "session_user", "current_catalog"}
_NAMES = {
    "name",
    "char",
    "regproc",
    "regprocedure",
    "regnamespace",
    "regrole",
    "regoperator",
    "cstring",
    "bpchar",
    "int2vector",
}


def catalog_query(sql: str) -> exp.Expr | None:
    """Return the tree of a query that reads only the catalog; None for any other text."""
    words = {token.name.lower() for token in tokenize(sql)}
    if not any(w in _FUNCTIONS or w in _SCHEMAS or w.startswith(("pg_", "reg")) for w in words):
        return None
    try:
        query = parse_one(sql, read="postgres")
    except (SqlglotError, RecursionError):
        return None
    if not isinstance(query, exp.Query):
        return None
    ctes = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    tables = [t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
    ours = all(_is_ours(t) or (t.name.lower() in ctes and not t.db) for t in tables)
    return query if ours else None


def _is_ours(table: exp.Table) -> bool:
    schema, name = table.db.lower(), table.name.lower()
    return schema in _SCHEMAS or (not schema and name in _RELATIONS)


class ClientCatalog:
    """The catalog of one client, in a DuckDB database that its first query creates."""

    def __init__(self, session: ClientSession, process: int):
        self._session, self._process = session, process
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._tables: Sequence[ListedTable] | None = None

    def answer(self, query: exp.Expr, source: SourceText, tables: Sequence[ListedTable]) -> duckdb.DuckDBPyRelation:
        """Return the result of a query over the catalog, not yet computed. It ends the previous result. Raises QueryError."""
        connection = self._opened(tables)
        try:
            sql = translated(query, self._session).sql("duckdb")
        except SqlglotError as error:
            raise QueryError("this query of the catalog is not supported", detail=str(error)) from error
        try:
            return connection.sql(sql)
        except duckdb.Error as error:
            first = str(error).split("\n")[0]
            raise QueryError("this query of the catalog is not supported", detail=first) from error

    def _opened(self, tables: Sequence[ListedTable]) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            connection = duckdb.connect(config=_CONFIG)
            try:
                self._create(connection, tables)
            except BaseException:
                # An incomplete one is not locked either: the next query makes another.
                connection.close()
                raise
            self._connection = connection
        elif self._tables is not tables:
            self._fill(self._connection, tables)
        self._tables = tables
        return self._connection

    def _create(self, connection: duckdb.DuckDBPyConnection, tables: Sequence[ListedTable]) -> None:
        connection.execute("CREATE SCHEMA catalog; SET search_path = 'catalog'; SET TimeZone = 'UTC'")
        self._fill(connection, tables)
        version = f"PostgreSQL {VERSION} (sqlstream)"
        constants = {"_user": self._session.user, "_database": self._session.database, "_version": version}
        for name, value in constants.items():
            connection.execute(f"CREATE MACRO {name}() AS {quote_text(value)}")
        connection.execute(f"CREATE MACRO _pid() AS {self._process}")
        connection.execute("CREATE TABLE _settings (name VARCHAR, setting VARCHAR)")
        connection.executemany("INSERT INTO _settings VALUES (?, ?)", list(self._session.values().items()))
        connection.execute(definitions())
        connection.execute("SET lock_configuration = true")

    def _fill(self, connection: duckdb.DuckDBPyConnection, tables: Sequence[ListedTable]) -> None:
        for name, table in rows(tables).items():
            connection.register("_given", table)
            connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM _given")
            connection.unregister("_given")

    def close(self) -> None:
        """Close the database, if it was created."""
        if self._connection is not None:
            self._connection.close()


def translated(query: exp.Expr, session: ClientSession) -> exp.Expr:
    """Translate a query from PostgreSQL's SQL to DuckDB's: schemas, types and operators that only PostgreSQL has are replaced."""
    root = exp.Paren(this=query.copy())
    # Inner nodes come first: outer ones are made of them.
    for node in reversed(list(root.bfs())):
        new = _translated(node, session)
        if new is not node:
            node.replace(new)
    translation: exp.Expr = root.this
    return translation


def _translated(node: exp.Expr, session: ClientSession) -> Any:
    match node:
        case exp.Table():
            return _table(node)
        case exp.Column() if node.db.lower() in _SCHEMAS:
            return exp.column(node.this, node.args["table"])
        case exp.Dot() if isinstance(node.this, exp.Identifier | exp.Column) and node.this.name.lower() in _SCHEMAS:
            return node.expression
        case exp.Collate():
            return node.this
        case exp.Operator():
            return _operator(node)
        case exp.Cast():
            return _cast(node)
        case exp.CurrentUser() | exp.SessionUser():
            return exp.Literal.string(session.user)
        case exp.CurrentSchema():
            return exp.Literal.string("main")
        case exp.CurrentCatalog():
            return exp.Literal.string(session.database)
        case exp.Anonymous():
            return _call(node, session)
        case exp.Column() if not node.table and node.name.lower() == "user" and not node.this.quoted:
            return exp.Literal.string(session.user)
    return node


def _table(table: exp.Table) -> exp.Expr:
    if table.db.lower() not in _SCHEMAS:
        return table
    if table.db.lower() == "information_schema" and isinstance(table.this, exp.Identifier):
        name = exp.to_identifier(f"information_schema.{table.name.lower()}", quoted=True)
        table.set("this", name)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(name.name.rpartition(".")[2], quoted=True)))
    table.set("db", None)
    table.set("catalog", None)
    return table


_OPERATORS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "~~": exp.Like,
    "<": exp.LT,
    ">": exp.GT,
    "<=": exp.LTE,
    ">=": exp.GTE,
}


def _operator(node: exp.Operator) -> exp.Expr:
    symbol = str(node.args.get("operator") or "").rpartition(".")[2].strip()
    left_operand, right_operand = node.this, node.expression
    if symbol in ("~", "!~", "~*", "!~*"):
        regexp: exp.Expr = exp.RegexpLike(this=left_operand, expression=_without_collation(right_operand))
        return exp.Not(this=regexp) if symbol[0] == "!" else regexp
    if symbol == "!~~":
        return exp.Not(this=exp.Like(this=left_operand, expression=_without_collation(right_operand)))
    return _OPERATORS[symbol](this=left_operand, expression=right_operand) if symbol in _OPERATORS else node


def _without_collation(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Collate) else node


def _type_name(cast: exp.Cast) -> str:
    to = cast.args["to"]
    name = to.sql("postgres") if isinstance(to, exp.Expr) else str(to)
    return name.lower().replace('"', "").removeprefix("pg_catalog.")


def _cast(cast: exp.Cast) -> exp.Expr:
    to, inner = _type_name(cast), cast.this
    array = to.endswith("[]")
    if to == "oid":
        return exp.cast(inner, "BIGINT")
    if to == "regclass":
        outer = cast.parent
        named = isinstance(inner, exp.Literal) and inner.is_string
        if named or (isinstance(outer, exp.Cast) and _type_name(outer) in ("oid", "int8", "bigint")):
            return exp.func("_class_oid", inner) if named else inner
        return exp.func("_class_name", inner)
    if to == "regtype":
        literal = isinstance(inner, exp.Literal) and inner.is_string
        return exp.func("_type_oid", inner) if literal else exp.func("format_type", inner, exp.null())
    if to.removesuffix("[]") in (*_NAMES, "text", "varchar"):
        if array and isinstance(inner, exp.Literal) and inner.is_string:
            elements = [exp.Literal.string(e) for e in inner.name.strip("{}").split(",") if e]
            return exp.cast(exp.Array(expressions=elements), "VARCHAR[]")
        return exp.cast(inner, "VARCHAR[]" if array else "VARCHAR")
    return cast


def _call(call: exp.Anonymous, session: ClientSession) -> exp.Expr:
    name = call.name.lower()
    arguments = call.expressions
    if name == "set_config" and len(arguments) > 1:
        return exp.cast(arguments[1], "VARCHAR")
    if name == "current_setting" and arguments:
        value = session.setting(arguments[0].name)
        return exp.null() if value is None else exp.Literal.string(value)
    if name in ("json_build_object", "jsonb_build_object"):
        return exp.func("json_object", *arguments)
    return call
