"""State queries: one statement, in a DuckDB that can reach nothing but the warehouse and declared tables."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb

from sqlstream.duck import remote_files
from sqlstream.duck.databases import FORGETS_FILES
from sqlstream.duck.errors import translate
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import DamageError, QueryError, SourceText, SqlStreamError
from sqlstream.queries.arguments import RelationFactory
from sqlstream.queries.diff import create_diff
from sqlstream.queries.relations import Relations, drop_names
from sqlstream.queries.statement import Statement, parse_statement
from sqlstream.queries.why import create_why
from sqlstream.storage.snapshot import VersionGone
from sqlstream.storage_errors import storage_errors
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.process_folders import SPILL, process_folder
from sqlstream.warehouse.records import GONE

__all__ = ["QueryLimits", "Sandbox", "calls_with", "list_relations", "open_query", "translate"]

# How often a query is tried whose files are deleted while it starts; two such failures in a row are rare.
_ATTEMPTS = 4

# DuckDB's own listing shows the parts of a name as columns. Lines stay short, because DESCRIBE shows the types.
_LISTING = """
SELECT concat_ws('.', nullif(database_name, 'memory'), nullif(schema_name, 'main'), table_name) AS name,
    regexp_replace(string_agg(column_name, ', ' ORDER BY column_index), '^(.{77}).{4,}$', '\\1...') AS columns
FROM duckdb_columns() WHERE NOT internal
GROUP BY database_name, schema_name, table_name
ORDER BY schema_name = 'sqlstream', database_name <> 'state', name
"""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The limits of a query: bytes of memory, bytes of temporary files, and threads. None is DuckDB's default."""

    memory: int | None = None
    spilled: int | None = None
    threads: int | None = None

    def settings(self) -> str:
        """Return the SET statements of the limits, as one text."""
        sizes = {"memory_limit": self.memory, "max_temp_directory_size": self.spilled}
        statements = [f"SET {name} = '{size // 1024}KiB';" for name, size in sizes.items() if size is not None]
        if statements:
            # A progress bar would go to the output of the server.
            statements.append("SET enable_progress_bar = false;")
        return " ".join([*statements, *([f"SET threads = {self.threads};"] if self.threads is not None else [])])


_NO_LIMITS = QueryLimits()


def open_query(
    warehouse: Warehouse,
    sql: str,
    *,
    functions: Sequence[Callable[[duckdb.DuckDBPyConnection], object]] = (),
    table_functions: Sequence[str] = (),
    catalog_tables: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
    calls: Mapping[str, RelationFactory] | None = None,
    extra_relations: Mapping[tuple[str, str], str] | None = None,
    allowed_paths: Sequence[str] = (),
    more_warehouses: Sequence[Warehouse] = (),
    temp_directory: str | None = None,
    limits: QueryLimits = _NO_LIMITS,
) -> duckdb.DuckDBPyRelation:
    """Return the result of one SELECT-like statement, not yet computed, over one committed version of each job.

    `catalog_tables` are DuckDB relations by table name, `extra_relations` further ones by schema and name. `others` has, for each
    declared name, why queries cannot read the table, or "" if they can. `calls` are further functions of the schema
    `sqlstream`. `allowed_paths` are files, directories and globs that may be read besides the warehouse and `more_warehouses`.
    `functions` are called with the connection before anything runs in it: they register functions of the user, or keep the
    connection to interrupt the query. `table_functions` are the names of registered functions that may stand in FROM.

    Raises QueryError, DamageError and OtherVersionError; pass errors while rows are fetched to `translate`.
    """
    sandbox = Sandbox(
        warehouse,
        functions=functions,
        table_functions=table_functions,
        allowed_paths=allowed_paths,
        more_warehouses=more_warehouses,
        temp_directory=temp_directory,
        limits=limits,
    )
    return sandbox.query(
        sql, catalog_tables=catalog_tables, others=others, calls=calls, extra_relations=extra_relations
    )


def calls_with(folders: Mapping[str, Warehouse]) -> dict[str, RelationFactory]:
    """Return `sqlstream.diff` and `sqlstream.why`, which read savepoints of `folders`, too, by the texts that name these."""
    return {"diff": partial(create_diff, folders=folders), "why": partial(create_why, folders=folders)}


class Sandbox:
    """A DuckDB connection that can reach nothing but a warehouse and some paths, for one query after another.

    See `open_query` for the arguments of the constructor and of `query`.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        *,
        functions: Sequence[Callable[[duckdb.DuckDBPyConnection], object]] = (),
        table_functions: Sequence[str] = (),
        allowed_paths: Sequence[str] = (),
        more_warehouses: Sequence[Warehouse] = (),
        temp_directory: str | None = None,
        limits: QueryLimits = _NO_LIMITS,
    ):
        # Callers may set another warehouse between two queries, below the folders that the connection can reach.
        self.warehouse = warehouse
        self._functions, self._table_functions = functions, table_functions
        self._connection = _connect((warehouse, *more_warehouses), allowed_paths, temp_directory, limits)
        self._prepared = False

    def query(
        self,
        sql: str,
        *,
        catalog_tables: Mapping[str, str] | None = None,
        others: Mapping[str, str] | None = None,
        calls: Mapping[str, RelationFactory] | None = None,
        extra_relations: Mapping[tuple[str, str], str] | None = None,
        only: str | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Return the result of a query, not yet computed; the result of the previous query becomes invalid.

        With `only`, the query sees no other job than that one.
        """
        source = SourceText("query", sql)
        statement = parse_statement(source, self._connection, self._table_functions)
        _check_warehouse(self.warehouse, statement)
        self._prepare()
        for attempt in range(_ATTEMPTS):
            relations = Relations(self.warehouse, catalog_tables or {}, others or {}, calls, extra_relations, only)
            try:
                return _open(self._connection, statement, relations, last=attempt == _ATTEMPTS - 1)
            except (FileNotFoundError, VersionGone, DamageError, duckdb.IOException) as error:
                if isinstance(error, DamageError) and error.fault != GONE:
                    raise
                if attempt == _ATTEMPTS - 1:
                    raise _overtaken(error, source) from error
        raise AssertionError("unreachable")

    def _prepare(self) -> None:
        """Register the functions at the first query; before later ones, drop the names of the previous query."""
        if self._prepared:
            drop_names(self._connection)
            return
        for register in self._functions:
            register(self._connection)
        self._prepared = True

    def close(self) -> None:
        """Close the connection; results that have not been fetched are lost."""
        self._connection.close()


def list_relations(warehouse: Warehouse) -> list[tuple[str, ...]]:
    """Return the names that a query can use, as their parts: state views, tables of the warehouse, `sqlstream.*`, savepoints."""
    return list(Relations(warehouse, {}, {}).paths())


def _open(
    connection: duckdb.DuckDBPyConnection, statement: Statement, relations: Relations, *, last: bool
) -> duckdb.DuckDBPyRelation:
    try:
        text = relations.create(connection, statement, last=last)
    except duckdb.IOException:
        raise
    except duckdb.Error as error:
        # DuckDB opens the files of a declared table here.
        raise translate(error, statement.source) from error
    text = _LISTING if statement.shows_tables else text
    try:
        return connection.sql(text)
    except duckdb.Error as error:
        failed = error
    # An error of a relation has no position, because the relation has lost its text: run the text for an error that has both.
    try:
        connection.execute(text)
    except duckdb.IOException:
        raise
    except duckdb.Error as error:
        failed = error
    columns = _columns(connection, statement)
    raise translate(failed, statement.source, relations.suggestions(), relations.others, columns) from failed


def _columns(connection: duckdb.DuckDBPyConnection, statement: Statement) -> list[str]:
    """Return the columns of the relations in a statement, except relations that cannot be read."""
    columns: dict[str, None] = {}
    for path in (*statement.relations, *(travel.path for travel in statement.travels)):
        try:
            columns |= dict.fromkeys(connection.sql(f"FROM {'.'.join(map(quote_name, path))}").columns)
        except duckdb.Error:
            continue
    return list(columns)


def _check_warehouse(warehouse: Warehouse, statement: Statement) -> None:
    paths = [*statement.relations, *(t.path for t in statement.travels)]
    ours = (
        statement.shows_tables
        or bool(statement.calls)
        or any(path[0].lower() in ("state", "sqlstream", "savepoint") for path in paths)
    )
    if ours and not _is_there(warehouse):
        hint = "Run a job first, or name its folder with --warehouse."
        raise QueryError(f'there is no warehouse at "{warehouse.root}"', hint=hint)


def _is_there(warehouse: Warehouse) -> bool:
    """Return whether there is a warehouse. Raises UsageError where this user must not look for it."""
    if not warehouse.fs.local:
        return bool(warehouse.fs.entries(warehouse.root))
    with storage_errors(warehouse.root):
        return Path(warehouse.root).is_dir()


def _overtaken(error: Exception, source: SourceText) -> SqlStreamError:
    if isinstance(error, DamageError):
        # A file that is missing in each attempt has not been replaced.
        return error
    if isinstance(error, duckdb.IOException):
        return translate(error, source)
    return QueryError("the state changed faster than it could be read", hint="Run the query again.")


def _connect(
    warehouses: Sequence[Warehouse], allowed_paths: Sequence[str], temp_directory: str | None, limits: QueryLimits
) -> duckdb.DuckDBPyConnection:
    """Return a connection that can reach nothing but some warehouses and some paths; its settings are locked."""
    directories, files = _reachable([*(w.root for w in warehouses if w.fs.local), *allowed_paths])
    directories += [w.fs.path_for_duckdb(f"{w.root}/") for w in warehouses if not w.fs.local]
    spill = temp_directory or process_folder(SPILL)
    connection = duckdb.connect(config={"python_enable_replacements": False, **FORGETS_FILES})
    remote_files.register(connection, set())
    connection.execute(
        f"""
        SET TimeZone = 'UTC';
        SET temp_directory = {quote_text(spill)};
        {limits.settings()}
        SET autoinstall_known_extensions = false;
        SET autoload_known_extensions = false;
        SET allow_community_extensions = false;
        SET allow_persistent_secrets = false;
        SET allowed_directories = [{", ".join(map(quote_text, directories))}];
        SET allowed_paths = [{", ".join(map(quote_text, files))}];
        SET enable_external_access = false;
        SET lock_configuration = true;
        """
    )
    return connection


def _reachable(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the directories, with all below them, and the files that DuckDB may read for some directories, globs and files."""
    directories, files = set(), []
    for path in map(os.path.abspath, paths):
        if glob.has_magic(path) and not os.path.exists(path):
            # The directories that a glob matches are not known beforehand, so all below its fixed part may be read.
            fixed = re.split(r"[*?\[]", path, maxsplit=1)[0]
            directories.add(os.path.dirname(fixed))
        elif os.path.isfile(path):
            files.append(path)
        else:
            directories.add(path)
    # DuckDB compares an escaped pattern as it is written.
    return sorted(directories | set(map(glob.escape, directories))), files
