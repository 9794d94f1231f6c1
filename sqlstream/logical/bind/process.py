"""Binding of calls of process functions: tables with their keys and orders, constants, and event times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
from sqlglot import exp

from sqlstream.catalog import Catalog, Column, ProcessFunction, ScalarArgument, TableArgument
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError, missing
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import NULL_TYPE, TypeChecker
from sqlstream.logical.bind.joins.joins import Relation
from sqlstream.logical.bind.process_checks import alike, called, check_names, check_state
from sqlstream.logical.bind.process_keys import KeyedRelation, PartitionBinder
from sqlstream.logical.bind.process_rows import with_rows
from sqlstream.logical.bind.scope import Scope, column_reference
from sqlstream.logical.plan.expressions import Expression, Field, Item
from sqlstream.logical.plan.process import Process, ProcessInput
from sqlstream.names import check_name
from sqlstream.sql.process_calls import ArgumentSQL, DescriptorSQL, ProcessCall, TableArgumentSQL
from sqlstream.sql.spans import span_of

# Arguments that every call accepts, beside the function's own.
ON_TIME, UID = "on_time", "uid"


@dataclass
class _Arguments:
    """The arguments of a call: tables and constants by the function's names, on_time and uid."""

    tables: dict[str, TableArgumentSQL] = field(default_factory=dict)
    scalars: dict[str, exp.Expr] = field(default_factory=dict)
    on_time: DescriptorSQL | None = None
    uid: exp.Expr | None = None


class ProcessBinder:
    """Binds calls of process functions; `relation` binds a table, a view or a subquery."""

    def __init__(
        self, catalog: Catalog, checker: TypeChecker, source: SourceText, relation: Callable[[exp.Expr], Relation]
    ):
        self.catalog, self.checker, self.source, self.relation = catalog, checker, source, relation

    def bind(self, call: ProcessCall) -> Process:
        """Return the node of a call.

        Raises BindError for arguments that do not fit the function, UnsupportedError for tables or orders that it cannot have.
        """
        function = self._function(call)
        arguments = self._arguments(function, call)
        relations = [self.relation(arguments.tables[t.name].this) for t in function.tables]
        for argument, relation in zip(function.tables, relations, strict=True):
            self._check_table(function, argument, arguments.tables[argument.name], relation)
        keyed_relations = self._partitioned(function, arguments, relations)
        relations = [one.relation for one in keyed_relations]
        span = self._span(call.this)
        function = with_rows(function, [one.own for one in keyed_relations], span)
        keys = self._keys(function, arguments, keyed_relations)
        orders = self._orders(function, arguments, relations)
        times = self._times(function, arguments, relations, orders)
        reads = tuple(
            ProcessInput(
                one.relation.alias,
                own,
                self._columns(function, argument, one, arguments),
                time,
                order,
                argument.broadcast,
            )
            for argument, one, own, time, order in zip(
                function.tables, keyed_relations, keys, times, orders, strict=True
            )
        )
        keyed = next(own for argument, own in zip(function.tables, keys, strict=True) if not argument.broadcast)
        check_state(function, keyed, span)
        name = self._uid(arguments)
        names = tuple(k.column or "" for k in keyed)
        node = Process(
            tuple(r.node for r in relations),
            name or "",
            function,
            reads,
            tuple(self._scalar(function, s, arguments, span) for s in function.scalars),
            names,
            has_rowtime=arguments.on_time is not None,
            uid=name,
            span=span,
        )
        check_names(node, span)
        return node

    # -- the function

    def _function(self, call: ProcessCall) -> ProcessFunction:
        name, span = call.name, self._span(call.this)
        function = self.catalog.process_function(name)
        if function is not None:
            return function
        if self.catalog.function(name) is not None or self.catalog.aggregate_function(name) is not None:
            hint = "A function that takes tables is a class under @process."
            raise BindError(f'"{name}" is a function of values, not of tables', span, hint=hint)
        hint = missing("process function", name, [f.name for f in self.catalog.process_functions.values()])
        detail = "\n".join(f"{error.message}." for error in self.catalog.broken) or None
        raise BindError(f'process function "{name}" does not exist', span, hint=hint, detail=detail)

    # -- arguments

    def _arguments(self, function: ProcessFunction, call: ProcessCall) -> _Arguments:
        """Return the arguments by name. Positional ones are tables, then constants, on_time and uid; named ones follow."""
        arguments = _Arguments()
        parameters = [*(t.name for t in function.tables), *(s.name for s in function.scalars), ON_TIME, UID]
        named = False
        for index, argument in enumerate(call.expressions):
            written = argument.args.get("name")
            if written is None and named:
                hint = f"arguments: {', '.join(parameters)}"
                raise self._error(function, "an argument without a name behind one with a name", argument, hint)
            named = written is not None
            if written is None and index >= len(parameters):
                raise self._error(function, f"it takes {len(parameters)} arguments at most", argument)
            parameter = parameters[index] if written is None else written.name
            name = next((p for p in parameters if p.lower() == parameter.lower()), None)
            if name is None:
                raise self._error(
                    function, f'it has no argument "{parameter}"', written, missing("argument", parameter, parameters)
                )
            self._take(function, arguments, name, argument)
        for table in function.tables:
            if table.name not in arguments.tables:
                hint = f"Write {table.name} => TABLE t {'BROADCAST' if table.broadcast else 'PARTITION BY k'}."
                raise self._error(function, f'it needs a table for "{table.name}"', call.this, hint)
        return arguments

    def _take(self, function: ProcessFunction, arguments: _Arguments, name: str, argument: ArgumentSQL) -> None:
        value = argument.args["value"]
        is_there = {*arguments.tables, *arguments.scalars}
        is_there |= {n for n, v in ((ON_TIME, arguments.on_time), (UID, arguments.uid)) if v is not None}
        if name in is_there:
            raise self._error(function, f'"{name}" is given twice', argument)
        if name in (t.name for t in function.tables):
            if not isinstance(value, TableArgumentSQL):
                raise self._error(function, f'"{name}" is a table', value, f"Write {name} => TABLE t PARTITION BY k.")
            arguments.tables[name] = value
        elif isinstance(value, TableArgumentSQL):
            raise self._error(function, f'"{name}" is not a table', value)
        elif name == ON_TIME:
            if not isinstance(value, DescriptorSQL):
                raise self._error(function, "on_time is a time column", value, "Write on_time => DESCRIPTOR(ts).")
            arguments.on_time = value
        elif isinstance(value, DescriptorSQL):
            hint = f"{ON_TIME} => DESCRIPTOR(..) says which column has the event time."
            raise self._error(function, f'"{name}" is a constant, not a column', value, hint)
        elif name == UID:
            arguments.uid = value
        else:
            arguments.scalars[name] = value

    def _uid(self, arguments: _Arguments) -> str | None:
        if arguments.uid is None:
            return None
        span = self._span(arguments.uid)
        if not isinstance(arguments.uid, exp.Literal) or not arguments.uid.is_string:
            raise BindError("uid is a name in quotes", span, hint="Write uid => 'reconcile'.")
        check_name("an operator", arguments.uid.name, span)
        return str(arguments.uid.name)

    def _scalar(
        self, function: ProcessFunction, parameter: ScalarArgument, arguments: _Arguments, call: Span
    ) -> Expression:
        """Return the value, or the default, of a constant, cast to its type."""
        node = arguments.scalars.get(parameter.name)
        if node is None:
            if parameter.default is None:
                hint = f"Write {parameter.name} => .., a constant of type {parameter.type}."
                raise BindError(f'{called(function)}: it needs a value for "{parameter.name}"', call, hint=hint)
            return Expression.over((), parameter.default, parameter.type)
        bound = self._constant(function, parameter, node)
        span = bound.span
        if bound.type == NULL_TYPE or self._is_null(bound.sql):
            if not parameter.nullable:
                raise BindError(f'{called(function)}: "{parameter.name}" is NULL', span, hint="Its hint has no | None.")
        elif not self._fits(bound.type, parameter.type):
            message = f'{called(function)}: "{parameter.name}" is {parameter.type}, not {bound.type}'
            raise BindError(message, span, hint=f"Write CAST(.. AS {parameter.type}).")
        return bound.cast(parameter.type)

    def _constant(self, function: ProcessFunction, parameter: ScalarArgument, node: exp.Expr) -> Expression:
        scope = Scope("", (), self.source, "a constant")
        column = node.find(exp.Column)
        if column is not None:
            hint = "A value of each row is in the row that the method gets."
            raise self._error(function, f'"{parameter.name}" is a constant, not a column', column, hint)
        binder = ExpressionBinder(scope, self.catalog, self.checker)
        binder.refuse_aggregates(node, "in a constant")
        bound = binder.bind(node)
        if bound.volatile or bound.reads.clock:
            hint = "It has one value for the life of the job."
            raise self._error(function, f'"{parameter.name}" is a constant, and differs between calls', node, hint)
        return bound

    def _is_null(self, sql: str) -> bool:
        try:
            [(null,)] = self.checker.con.execute(f"SELECT ({sql}) IS NULL").fetchall()
        except duckdb.Error:
            return False
        return bool(null)

    # -- tables

    def _check_table(
        self, function: ProcessFunction, argument: TableArgument, node: TableArgumentSQL, relation: Relation
    ) -> None:
        span = self._span(node.this)
        self._check_broadcast(function, argument, node)
        origin = relation.node.changelog_origin
        if origin is not None and not argument.changes:
            raise UnsupportedError(
                f"{relation.described}, whose rows change, as an argument of {called(function)}",
                span,
                detail=f"{origin.label} takes rows back that it has emitted.",
                hint="Aggregate in windows: their results are final. Or let the class take changes: @process(changes=True).",
            )

    def _check_broadcast(self, function: ProcessFunction, argument: TableArgument, node: TableArgumentSQL) -> None:
        is_broadcast = bool(node.args.get("broadcast"))
        if argument.broadcast and not is_broadcast:
            message = f'"{argument.name}" is a broadcast table: all keys see its rows'
            raise self._error(function, message, node, f"Write {argument.name} => TABLE t BROADCAST.")
        if is_broadcast and not argument.broadcast:
            message = f'BROADCAST for "{argument.name}", whose rows are those of keys'
            raise self._error(function, message, node, "In Python such a method has @table(broadcast=True).")
        if argument.broadcast and (columns := node.args.get("partition_by")):
            raise self._error(
                function, "PARTITION BY for a broadcast table", columns[0], "All keys see its rows: leave it out."
            )

    def _partitioned(
        self, function: ProcessFunction, arguments: _Arguments, relations: Sequence[Relation]
    ) -> list[KeyedRelation]:
        """Return the tables with their keys, and with the columns that PARTITION BY computes."""
        binder = PartitionBinder(function, self.catalog, self.checker, self.source)
        items = [arguments.tables[t.name].args.get("partition_by") or () for t in function.tables]
        return [binder.bind(relation, own) for relation, own in zip(relations, items, strict=True)]

    def _keys(
        self, function: ProcessFunction, arguments: _Arguments, relations: Sequence[KeyedRelation]
    ) -> list[tuple[Expression, ...]]:
        """Return the keys of each table; all tables but broadcast ones have as many keys, of the same types."""
        table_keys = [one.keys for one in relations]
        (first, first_keys), *others = (
            (table, keys) for table, keys in zip(function.tables, table_keys, strict=True) if not table.broadcast
        )
        for table, keys in others:
            node = arguments.tables[table.name]
            if len(keys) != len(first_keys):
                message = (
                    f'"{table.name}" is partitioned by {len(keys)} columns, but "{first.name}" by {len(first_keys)}'
                )
                hint = "All tables of a call are partitioned alike: rows of equal keys meet."
                raise self._error(function, message, node, hint)
            for own, other in zip(keys, first_keys, strict=True):
                if own.type != other.type:
                    message = (
                        f'column "{own.column}" is {own.type}, but "{other.column}" of "{first.name}" is {other.type}'
                    )
                    hint = f"Convert it in a subquery: TABLE (SELECT CAST({own.column} AS {other.type}) AS .. FROM ..)."
                    raise BindError(f"{called(function)}: {message}", own.span, hint=hint)
        return table_keys

    def _column(self, relation: Relation, column: exp.Expr) -> Expression:
        names = [f.name for f in relation.node.schema]
        schema_field = next((f for f in relation.node.schema if f.name.lower() == column.name.lower()), None)
        span = self._span(column)
        if schema_field is None:
            message = f'column "{column.name}" does not exist in {relation.described}'
            raise BindError(message, span, hint=missing("column", column.name, names))
        return Expression.of_column(schema_field.name, schema_field.type, span)

    def _orders(
        self, function: ProcessFunction, arguments: _Arguments, relations: Sequence[Relation]
    ) -> list[tuple[Expression, ...]]:
        """Return the order of each table, whose first item is its time attribute; either all tables have one, or none.

        A broadcast table may lack one: then the function gets its rows as they arrive.
        """
        orders = []
        for table, relation in zip(function.tables, relations, strict=True):
            node = arguments.tables[table.name]
            items = node.args.get("order_by") or ()
            if items and not node.args.get("partition_by") and not table.broadcast:
                hint = "Rows are in the order of time within a key: write TABLE t PARTITION BY k ORDER BY ts."
                raise self._error(function, "ORDER BY without PARTITION BY", items[0], hint)
            if items and function.vectorized:
                hint = "Write a class that gets its rows one by one: timers come between them."
                span = self._span(items[0])
                raise UnsupportedError(
                    f"ORDER BY in a call of {called(function)}, which is vectorized", span, hint=hint
                )
            if items and (function.changelog_mode or table.changes):
                hint = "Leave ORDER BY out: changes come in the order in which they happen."
                message = f"ORDER BY in a call of {called(function)}, which takes or emits changes"
                raise UnsupportedError(message, self._span(items[0]), hint=hint)
            orders.append(tuple(self._order_item(function, relation, i, index) for index, i in enumerate(items)))
        pairs = list(zip(function.tables, orders, strict=True))
        without = [t for t, order in pairs if not order and not t.broadcast]
        if without and any(order for _, order in pairs):
            hint = "All tables of a call come in one order of time, or none of them."
            message = f'"{without[0].name}" has no ORDER BY, but others have'
            raise self._error(function, message, arguments.tables[without[0].name], hint)
        return orders

    def _order_item(self, function: ProcessFunction, relation: Relation, item: exp.Expr, index: int) -> Expression:
        value = item.this if isinstance(item, exp.Ordered) else item
        if not isinstance(value, exp.Column):
            hint = "Make it a column in a subquery: TABLE (SELECT a + b AS c, * FROM t)."
            raise self._error(function, "ORDER BY takes columns", value, hint)
        column = self._column(relation, value)
        assert column.column is not None
        if index == 0:
            self._check_time(relation, column)
            if column.column in relation.node.clock_times:
                hint = "Leave it out: rows come in the order in which they arrive."
                raise UnsupportedError(
                    "ORDER BY processing time in a call of a process function", column.span, hint=hint
                )
            if isinstance(item, exp.Ordered) and item.args.get("desc"):
                message = f'ORDER BY begins with the time attribute "{column.column}" in ascending order'
                raise self._error(function, message, value)
        bound = item.copy()
        bound.set("this", column_reference(column.column))
        return Expression.of(bound, column.type, column.span)

    def _times(
        self,
        function: ProcessFunction,
        arguments: _Arguments,
        relations: Sequence[Relation],
        orders: Sequence[tuple[Expression, ...]],
    ) -> list[str | None]:
        """Return the event-time column of each table, None without one; on_time names one for all, or one for each."""
        if arguments.on_time is None:
            return [order[0].column if order else None for order in orders]
        columns = list(arguments.on_time.expressions)
        partitioned = len(function.partitioned)
        if len(columns) not in (1, partitioned, len(relations)):
            message = f"on_time has {len(columns)} columns for {len(relations)} tables"
            hint = "Name one column that all tables have, or one for each table."
            raise self._error(function, message, arguments.on_time, hint)
        for_all = len(columns) == len(relations) or partitioned == len(relations)
        if len(columns) == 1:
            columns *= len(relations) if for_all else partitioned
        times: list[str | None] = []
        types = []
        for index, (table, relation) in enumerate(zip(function.tables, relations, strict=True)):
            if table.broadcast and not for_all:
                # Its event time is the first column of its order, if it has one.
                times.append(orders[index][0].column if orders[index] else None)
                continue
            column = self._column(relation, columns.pop(0))
            assert column.column is not None
            self._check_time(relation, column)
            if orders[index] and orders[index][0].column != column.column:
                message = f'on_time is "{column.column}", but ORDER BY begins with "{orders[index][0].column}"'
                raise BindError(f"{called(function)}: {message}", column.span)
            if column.column in relation.node.clock_times:
                raise UnsupportedError(
                    "on_time over processing time", column.span, hint="Leave it out: ctx.processing_time is the clock."
                )
            times.append(column.column)
            types.append(column.type)
        if len(set(types)) > 1:
            raise self._error(function, f"on_time has columns of types {' and '.join(types)}", arguments.on_time)
        return times

    def _check_time(self, relation: Relation, column: Expression) -> None:
        if column.column in relation.node.time_attributes:
            return
        attribute = relation.node.time_attribute
        hint = (
            f'The time attribute of {relation.described} is "{attribute}".'
            if attribute
            else (
                f"Declare it in CREATE TABLE: WATERMARK FOR {column.column} AS {column.column}. "
                "It remains one as long as every query on the way passes it on unchanged."
            )
        )
        message = f'column "{column.column}" of {relation.described} is not a time attribute'
        raise BindError(message, column.span, hint=hint)

    def _columns(
        self, function: ProcessFunction, argument: TableArgument, one: KeyedRelation, arguments: _Arguments
    ) -> tuple[Item, ...]:
        """Return the columns that a method gets: the fields of its row's type hint, or all columns for a Row."""
        relation = one.relation
        fields = {f.name.lower(): f for f in relation.node.schema}
        span = self._span(arguments.tables[argument.name].this)
        if argument.columns is None:
            items = [Item(f.name, Expression.of_column(f.name, f.type, span)) for f in one.own]
        else:
            items = [self._item(function, argument, c, fields, relation, span) for c in argument.columns]
        if function.vectorized == "bucket":
            # The operator adds the keys itself.
            keys = {key.column.lower() for key in one.keys if key.column}
            items = [i for i in items if i.name.lower() not in keys]
        return tuple(items)

    def _item(
        self,
        function: ProcessFunction,
        argument: TableArgument,
        column: Column,
        fields: Mapping[str, Field],
        relation: Relation,
        span: Span,
    ) -> Item:
        own = fields.get(column.name.lower())
        at = f" --> {argument.line}"
        if own is None:
            message = f'{called(function)}: its rows have a column "{column.name}", which {relation.described} has not'
            hint = missing("column", column.name, [f.name for f in fields.values()])
            raise BindError(message, span, detail=at, hint=hint)
        expression = Expression.of_column(own.name, own.type, span)
        if alike(own.type, column.type):
            return Item(column.name, expression)
        if not self._fits(own.type, column.type):
            message = f'{called(function)}: column "{column.name}" is {column.type} in its rows, but {own.type}'
            hint = (
                f"Convert it in a subquery: TABLE (SELECT CAST({own.name} AS {column.type}) AS {own.name}, .. FROM ..)."
            )
            raise BindError(f"{message} in {relation.described}", span, detail=at, hint=hint)
        return Item(column.name, expression.cast(column.type))

    def _fits(self, own: str, target: str) -> bool:
        """Return whether DuckDB casts values of a type to another one implicitly; DECIMAL may also become FLOAT or DOUBLE."""
        if own == target:
            return True
        numbers = own.startswith("DECIMAL") and target in ("DOUBLE", "FLOAT")
        try:
            sql = f"SELECT can_cast_implicitly(CAST(NULL AS {own}), CAST(NULL AS {target}))"
            [(fits,)] = self.checker.con.execute(sql).fetchall()
        except duckdb.Error:
            return False
        return bool(fits) or numbers

    def _error(self, function: ProcessFunction, message: str, node: exp.Expr, hint: str | None = None) -> BindError:
        return BindError(f"{called(function)}: {message}", self._span(node), hint=hint)

    def _span(self, node: exp.Expr) -> Span:
        return span_of(node, self.source)
