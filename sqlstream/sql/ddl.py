"""CREATE and DROP, read word by word so that errors are exact."""

from __future__ import annotations

from typing import Literal, cast, get_args

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.names import check_name
from sqlstream.sql import grammar
from sqlstream.sql.nodes import (
    CATALOG,
    ColumnDef,
    CreateDatabase,
    CreateFunction,
    CreateSavepoint,
    CreateTable,
    CreateTableAs,
    CreateView,
    Drop,
    DropDatabase,
    DropFunction,
    DropSavepoint,
    Feature,
    Merge,
    Name,
    OptionValue,
    TableLike,
    Use,
    WatermarkDef,
)
from sqlstream.sql.parser import StreamingParser
from sqlstream.sql.unsupported import COLUMN_CLAUSES, CONSTRAINTS

FEATURES: tuple[str, ...] = get_args(Feature)
_MERGES: tuple[str, ...] = get_args(Merge)
_IN_PYTHON = (
    "Write it in Python, and CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON: sqlstream docs python/functions."
)


class TableBody:
    """What has been read so far of the parentheses of CREATE TABLE."""

    def __init__(self) -> None:
        self.columns: list[ColumnDef] = []
        self.watermark: WatermarkDef | None = None
        self.primary_key: tuple[Name, ...] = ()


class DefinitionParser(StreamingParser):
    """Reads CREATE and DROP of tables, views, functions and savepoints, and their parts."""

    def _parse_definition(
        self,
    ) -> CreateTable | CreateTableAs | CreateView | CreateFunction | CreateSavepoint | CreateDatabase:
        start = self._curr
        self._need("CREATE")
        replace = bool(self._match_text_seq("OR", "REPLACE"))
        temporary = bool(self._match_texts(("TEMPORARY", "TEMP")))
        if self._match(TokenType.TABLE):
            return self._parse_create_table(start, temporary, replace)
        if self._match(TokenType.VIEW):
            return self._parse_create_view(start, temporary, replace)
        if not replace and self._match_function(temporary):
            return self._parse_create_function(start)
        if not (replace or temporary) and self._match_text_seq("SAVEPOINT"):
            return self._parse_create_savepoint(start)
        if not (replace or temporary) and self._match(TokenType.DATABASE):
            return self._parse_create_database(start)
        raise self._expected("TABLE, VIEW, FUNCTION or SAVEPOINT")

    def _match_function(self, temporary: bool) -> bool:
        """Skip FUNCTION, or the SYSTEM FUNCTION of Flink behind TEMPORARY: functions of Python have no catalog."""
        if temporary and self._match_text_seq("SYSTEM"):
            self._need("FUNCTION")
            return True
        return bool(self._match(TokenType.FUNCTION))

    def _parse_create_table(self, start: Token, temporary: bool, replace: bool) -> CreateTable | CreateTableAs:
        if_not_exists = self._if_not_exists(replace)
        name = self._new_relation("a table")
        # Another table, a query, or the source, may have all columns.
        bare = self._curr and (
            self._curr.token_type in (TokenType.LIKE, TokenType.WITH, TokenType.ALIAS, TokenType.PARTITION_BY)
            or self._curr.text.upper() in ("COMMENT", "DISTRIBUTED", "FRESHNESS", "REFRESH_MODE", "START_MODE")
        )
        body = TableBody() if bare else self._parse_table_body()
        if self._match_text_seq("COMMENT"):
            self._string("a comment in quotes")
        self._skip_distribution()
        partitioned_by = self._names() if self._match(TokenType.PARTITION_BY) else ()
        self._skip_distribution()
        options = self._options() if self._match(TokenType.WITH) else {}
        like = self._parse_table_like() if self._curr and self._curr.token_type == TokenType.LIKE else None
        table = CreateTable(
            self._span_from(start),
            name,
            tuple(body.columns),
            body.watermark,
            body.primary_key,
            options,
            if_not_exists,
            temporary,
            replace,
            like,
            partitioned_by,
        )
        if like is not None or not self._match(TokenType.ALIAS):
            return table
        first = self._curr
        query = self._query()
        return CreateTableAs(self._span_from(start), table, query, self._span_from(first))

    def _skip_distribution(self) -> None:
        """Skip DISTRIBUTED [BY [HASH | RANGE] (..)] [INTO n BUCKETS], which says how a store spreads rows."""
        start = self._curr
        if not self._match_text_seq("DISTRIBUTED"):
            return
        if self._match_text_seq("BY"):
            self._match_texts(("HASH", "RANGE"))
            self._names()
        if self._match(TokenType.INTO):
            self._need_token(TokenType.NUMBER, "a number")
            self._need("BUCKETS")
        self._notice("DISTRIBUTED", "rows are spread over buckets by their keys", self._span_from(start))

    def _parse_create_database(self, start: Token) -> CreateDatabase:
        if_not_exists = self._if_not_exists(replace=False)
        name = self._database_name()
        if self._match_text_seq("COMMENT"):
            self._string("a comment in quotes")
        if self._match(TokenType.WITH):
            self._options()
        return CreateDatabase(self._span_from(start), name, if_not_exists)

    def _parse_use_database(self) -> Use:
        start = self._curr
        self._need("USE")
        if self._match_text_seq("CATALOG"):
            catalog = self._name("the name of a catalog")
            self._check_catalog(catalog)
            return Use(self._span_from(start), None)
        self._match(TokenType.DATABASE)
        return Use(self._span_from(start), self._database_name())

    def _database_name(self) -> Name:
        """Read the name of a database, which may have the name of the catalog in front."""
        name = self._relation_name("the name of a database")
        if name.database is not None:
            self._check_catalog(Name(name.database, name.span))
        return Name(name.text, name.span)

    def _check_catalog(self, catalog: Name) -> None:
        """Raise UnsupportedError unless a name is CATALOG, the only catalog."""
        if catalog.text.lower() != CATALOG:
            hint = f"There is one catalog, {CATALOG}: put CREATE TABLE statements into files under catalog/."
            raise self._refused(f'the catalog "{catalog.text}"', catalog.span, hint)

    def _if_not_exists(self, replace: bool) -> bool:
        start = self._curr
        if not self._match_text_seq("IF", "NOT", "EXISTS"):
            return False
        if replace:
            raise self._wrong("OR REPLACE and IF NOT EXISTS exclude each other", self._span_from(start))
        return True

    def _parse_table_like(self) -> TableLike:
        start = self._need_token(TokenType.LIKE, "LIKE")
        table = self._relation_name("the name of a table")
        if not self._match(TokenType.L_PAREN):
            # Flink's default: INCLUDING ALL OVERWRITING OPTIONS.
            merges = {**dict.fromkeys(FEATURES, "INCLUDING"), "OPTIONS": "OVERWRITING"}
            return TableLike(table, cast(dict[Feature, Merge], merges), self._span_from(start))
        clauses: dict[str, str] = {}
        while self._match_texts(_MERGES):
            merge = self._prev.text.upper()
            features = ("ALL", "CONSTRAINTS") if merge != "OVERWRITING" else ()
            if not self._match_texts((*features, "GENERATED", "OPTIONS", "WATERMARKS")):
                raise self._expected(" or ".join((*features, "GENERATED, OPTIONS or WATERMARKS")))
            feature = self._prev.text.upper()
            if feature in clauses:
                raise self._wrong(f"{feature} is given twice", self._token_span(self._prev))
            clauses[feature] = merge
        self._need_token(TokenType.R_PAREN, '")"' if clauses else "INCLUDING, EXCLUDING or OVERWRITING")
        others = clauses.pop("ALL", "INCLUDING")
        merges = {**dict.fromkeys(FEATURES, others), **clauses}
        return TableLike(table, cast(dict[Feature, Merge], merges), self._span_from(start))

    def _parse_create_view(self, start: Token, temporary: bool, replace: bool) -> CreateView:
        if_not_exists = self._if_not_exists(replace)
        name = self._new_relation("a view")
        columns = self._names() if self._curr.token_type == TokenType.L_PAREN else ()
        if self._match_text_seq("COMMENT"):
            self._string("a comment in quotes")
        self._need("AS")
        query = self._query()
        return CreateView(self._span_from(start), name, columns, query, if_not_exists, temporary, replace)

    def _parse_create_function(self, start: Token) -> CreateFunction:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._new_name("a function")
        self._need("AS")
        reference = self._string("'module.name' in quotes")
        if self._match_text_seq("LANGUAGE"):
            if not self._match_text_seq("PYTHON"):
                language = self._token_span(self._curr or self._prev)
                raise self._refused(f"a function in {language.text.upper()}", language, _IN_PYTHON)
        else:
            # Flink's default is Java.
            raise self._refused("a function in JAVA", reference.span, _IN_PYTHON)
        if self._match_texts(("USING", "WITH")):
            hint = "The module is looked for in the project's folder, in udfs/, and among the installed packages."
            raise self._refused(f"{self._prev.text.upper()} in CREATE FUNCTION", self._token_span(self._prev), hint)
        return CreateFunction(self._span_from(start), name, reference.text, reference.span, bool(if_not_exists))

    def _parse_create_savepoint(self, start: Token) -> CreateSavepoint:
        name = self._new_name("a savepoint")
        self._need("FOR")
        self._need("JOB")
        return CreateSavepoint(self._span_from(start), name, self._name("the name of a job"))

    def _parse_drop_relation(self) -> Drop | DropFunction | DropSavepoint | DropDatabase:
        start = self._curr
        self._need("DROP")
        temporary = self._match_texts(("TEMPORARY", "TEMP"))
        kind: Literal["TABLE", "VIEW"]
        if self._match(TokenType.TABLE):
            kind = "TABLE"
        elif self._match(TokenType.VIEW):
            kind = "VIEW"
        elif self._match_function(bool(temporary)):
            if_exists = self._match_text_seq("IF", "EXISTS")
            name = self._name("the name of a function")
            return DropFunction(self._span_from(start), name, bool(if_exists))
        elif self._match_text_seq("SAVEPOINT"):
            if_exists = self._match_text_seq("IF", "EXISTS")
            name = self._name("the name of a savepoint")
            return DropSavepoint(self._span_from(start), name, bool(if_exists))
        elif self._match(TokenType.DATABASE):
            if_exists = self._match_text_seq("IF", "EXISTS")
            name = self._database_name()
            self._match_texts(("RESTRICT", "CASCADE"))
            return DropDatabase(self._span_from(start), name, bool(if_exists))
        else:
            raise self._expected("TABLE, VIEW, FUNCTION or SAVEPOINT")
        if_exists = self._match_text_seq("IF", "EXISTS")
        name = self._relation_name(f"the name of a {kind.lower()}")
        return Drop(self._span_from(start), kind, name, bool(if_exists), bool(temporary))

    # -- between the parentheses of CREATE TABLE

    def _parse_table_body(self) -> TableBody:
        body = TableBody()
        self._need_token(TokenType.L_PAREN, '"("')
        while True:
            self._parse_body_part(body)
            if not self._match(TokenType.COMMA):
                break
        self._need_token(TokenType.R_PAREN, '"," or ")"')
        return body

    def _parse_body_part(self, body: TableBody) -> None:
        start = self._curr
        if self._match_text_seq("WATERMARK", "FOR"):
            watermark = self._parse_watermark(start)
            if body.watermark:
                raise self._wrong("a table has one watermark", watermark.span)
            body.watermark = watermark
            return
        constraint = self._match(TokenType.CONSTRAINT)
        if constraint:
            self._name("the name of a constraint")
        self._refuse_clause(CONSTRAINTS)
        if self._match(TokenType.PRIMARY_KEY):
            self._set_primary_key(body, self._names(), start)
        elif constraint:
            raise self._expected("PRIMARY KEY")
        else:
            body.columns.append(self._parse_column_definition(body))

    def _parse_watermark(self, start: Token) -> WatermarkDef:
        column = self._name("the name of a column", "Compute a column from the field, and name that column here.")
        self._need("AS")
        return WatermarkDef(column, self._scalar(), self._span_from(start))

    def _set_primary_key(self, body: TableBody, columns: tuple[Name, ...], start: Token) -> None:
        if self._match_text_seq("ENFORCED"):
            raise self._refused("an enforced primary key", self._token_span(self._prev), "Write NOT ENFORCED.")
        self._match_text_seq("NOT", "ENFORCED")
        if body.primary_key:
            raise self._wrong("a table has one primary key", self._span_from(start))
        body.primary_key = columns

    def _parse_column_definition(self, body: TableBody) -> ColumnDef:
        start = self._curr
        name = self._name("the name of a column")
        self._refuse_twice(name, [column.name for column in body.columns], "column")
        if self._match(TokenType.ALIAS):
            expression = self._scalar()
            comment = self._string("a comment in quotes").text if self._match_text_seq("COMMENT") else None
            return ColumnDef(name, None, expression, False, comment, self._span_from(start))
        type_start = self._curr
        data_type = self._parse_types()
        if data_type is None:
            raise self._expected("a type, or AS and an expression")
        type_span = self._span_from(type_start)
        not_null, comment, metadata, virtual = self._parse_column_attributes(body, name)
        span = self._span_from(start)
        return ColumnDef(name, data_type.args["kind"], None, not_null, comment, span, type_span, metadata, virtual)

    def _parse_column_attributes(self, body: TableBody, name: Name) -> tuple[bool, str | None, Name | None, bool]:
        """Read the attributes of a column, in any order: whether it is NOT NULL, its comment, METADATA key and VIRTUAL."""
        not_null, comment, metadata, virtual = False, None, None, False
        while True:
            start = self._curr
            if self._match_text_seq("NOT", "NULL"):
                not_null = True
            elif self._match(TokenType.NULL):
                not_null = False
            elif self._match_text_seq("COMMENT"):
                comment = self._string("a comment in quotes").text
            elif self._match(TokenType.CONSTRAINT):
                self._name("the name of a constraint")
                if self._curr.token_type != TokenType.PRIMARY_KEY:
                    raise self._expected("PRIMARY KEY")
            elif self._match(TokenType.PRIMARY_KEY):
                self._set_primary_key(body, (name,), start)
            elif self._match_text_seq("METADATA"):
                metadata = self._string("a key in quotes") if self._match(TokenType.FROM) else name
                virtual = bool(self._match_text_seq("VIRTUAL"))
            else:
                self._refuse_clause(COLUMN_CLAUSES)
                return not_null, comment, metadata, virtual

    # -- names, strings, options

    def _name(self, what: str, hint: str = "All tables are in one catalog; write the name alone.") -> Name:
        token = self._curr
        identifier = self._parse_id_var(any_token=False)
        if not isinstance(identifier, exp.Identifier):
            raise self._expected(what)
        if self._match(TokenType.DOT):
            while self._parse_id_var(any_token=True) and self._match(TokenType.DOT):
                pass
            raise self._refused("a name of several parts", self._span_from(token), hint)
        return Name(identifier.name, self._token_span(token))

    def _relation_name(self, what: str) -> Name:
        """Read the name of a table or a view, which may have a database and a catalog in front."""
        first = self._curr
        parts: list[str] = []
        while not parts or self._match(TokenType.DOT):
            identifier = self._parse_id_var(any_token=bool(parts))
            if not isinstance(identifier, exp.Identifier):
                raise self._expected(what)
            parts.append(identifier.name)
        span = self._span_from(first)
        if len(parts) > 3:
            raise self._refused("a name of several parts", span, "Write database.name, or the name alone.")
        if len(parts) == 3:
            self._check_catalog(Name(parts[0], span))
        return Name(parts[-1], span, parts[-2] if len(parts) > 1 else None)

    def _new_relation(self, what: str) -> Name:
        """Read the name of a new table or view, see `_new_name`."""
        name = self._relation_name(f"the name of {what}")
        check_name(what, name.text, name.span)
        return name

    def _new_name(self, what: str) -> Name:
        """Read the name of a new object, which must also be valid as the name of a folder."""
        name = self._name(f"the name of {what}")
        check_name(what, name.text, name.span)
        return name

    def _names(self) -> tuple[Name, ...]:
        """Read the names of columns in parentheses."""
        self._need_token(TokenType.L_PAREN, '"("')
        names: list[Name] = []
        while not names or self._match(TokenType.COMMA):
            name = self._name("the name of a column")
            self._refuse_twice(name, names, "column")
            names.append(name)
        self._need_token(TokenType.R_PAREN, '"," or ")"')
        return tuple(names)

    def _refuse_twice(self, name: Name, earlier: list[Name], what: str) -> None:
        if any(name.text.lower() == other.text.lower() for other in earlier):
            raise self._wrong(f'the {what} "{name.text}" is given twice', name.span)

    def _string(self, what: str) -> Name:
        token = self._need_token(TokenType.STRING, what)
        return Name(token.text, self._token_span(token))

    def _options(self) -> dict[str, OptionValue]:
        """Read `('key' = 'value', ...)`."""
        self._need_token(TokenType.L_PAREN, '"("')
        options: dict[str, OptionValue] = {}
        while self._curr.token_type != TokenType.R_PAREN:
            key = self._string("an option in quotes")
            if key.text in options:
                raise self._wrong(f'the option "{key.text}" is given twice', key.span)
            self._need_token(TokenType.EQ, '"="')
            value = self._string("a value in quotes")
            options[key.text] = OptionValue(value.text, value.span, key.span)
            if not self._match(TokenType.COMMA):
                break
        self._need_token(TokenType.R_PAREN, '"," or ")"')
        return options

    def _scalar(self) -> exp.Expression:
        index, start = self._index, self._curr
        expression = self._parse_disjunction()
        if not isinstance(expression, exp.Expression):
            raise self._expected("an expression")
        grammar.check(self.source, self._span_from(start), self._tokens[index : self._index], expression, self.beyond)
        return expression

    def _query(self) -> exp.Query:
        index, start = self._index, self._curr
        query = self._parse_query()
        grammar.check(self.source, self._span_from(start), self._tokens[index : self._index], query, self.beyond)
        return query

    def _refuse_clause(self, clauses: dict[str, str]) -> None:
        words = self._curr.text.upper()
        if words in clauses and self._curr.token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
            raise self._refused(f"{words} in CREATE TABLE", self._token_span(self._curr), clauses[words])
