"""Answers the calls of Flight: commands, tickets, parameters and actions."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from sqlstream.errors import QueryError, SqlStreamError
from sqlstream.server.flight.access import owner_of
from sqlstream.server.flight.errors import flight_exception
from sqlstream.server.flight.messages import NoMessage, message, packed, parsed, unpacked
from sqlstream.server.flight.metadata import Metadata, schema_of
from sqlstream.server.flight.parameters import MOST_BYTES, check_rows
from sqlstream.server.flight.queries import ClientQueries, OpenedQuery
from sqlstream.server.flight.sockets import StrangerWatch
from sqlstream.server.flight.statements import FlightStatement, FlightStatements

_ACTIONS = {
    "CreatePreparedStatement": "Prepares a statement.",
    "ClosePreparedStatement": "Closes a prepared statement.",
    "BeginTransaction": "Begins a transaction, which changes nothing: clients only read.",
    "EndTransaction": "Ends a transaction.",
    "CancelFlightInfo": "Cancels a query.",
    "CancelQuery": "Cancels a query, as clients did before CancelFlightInfo.",
}
_CANCELLED, _NOT_CANCELLABLE = 1, 3
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _answering(method: _Method) -> _Method:
    """Wrap a method: its errors become errors of Flight, and the caller's connection is known to be a client's."""

    @functools.wraps(method)
    def answered(requests: FlightRequests, context: Any, *arguments: Any) -> Any:
        try:
            requests.strangers.know(context.peer())
            return method(requests, context, *arguments)
        except Exception as error:
            raise flight_exception(error) from None

    return answered  # type: ignore[return-value]


class FlightRequests(fl.FlightServerBase):  # type: ignore[misc]
    """The server of Flight, which listens as soon as it is created. Flight calls these methods in threads of its own."""

    def __init__(
        self, queries: ClientQueries, metadata: Metadata, strangers: StrangerWatch, location: str, **options: Any
    ):
        self._queries, self._metadata = queries, metadata
        self._tickets, self._prepared_ones = FlightStatements(), FlightStatements()
        # A client whose call gets here is no stranger.
        self.strangers = strangers
        super().__init__(location, **options)

    @_answering
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Return the columns of a command's result, and the ticket that fetches its rows."""
        name, command = _command(descriptor)
        if (schema := schema_of(name, command)) is not None:
            # The answer is made when it is fetched: the command is the ticket.
            return _info(schema, descriptor, descriptor.command)
        statement, opened = self._opened(name, command, context)
        key = self._queries.keep(opened)
        ticket = self._tickets.keep(owner_of(context), FlightStatement(statement.sql, statement.parameters, key))
        return _info(opened.schema, descriptor, packed("TicketStatementQuery", statement_handle=ticket))

    @_answering
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the columns of a command's result."""
        # For errors of this method alone, pyarrow also sends where they were raised.
        name, command = _command(descriptor)
        schema = schema_of(name, command)
        if schema is None:
            schema = self._queries.schema(self._statement(name, command, context).source(), context)
        return fl.SchemaResult(schema)

    def _opened(self, name: str, command: Any, context: Any) -> tuple[FlightStatement, OpenedQuery]:
        statement = self._statement(name, command, context)
        return statement, self._queries.open(statement.source(), context)

    def _statement(self, name: str, command: Any, context: Any) -> FlightStatement:
        match name:
            case "CommandStatementQuery" | "CommandStatementUpdate":
                statement = FlightStatement(command.query)
                statement.check()
                return statement
            case "CommandPreparedStatementQuery" | "CommandPreparedStatementUpdate":
                return self._prepared_ones.of(owner_of(context), command.prepared_statement_handle)
            case _:
                raise NoMessage(f"{name} is not supported")

    @_answering
    def do_get(self, context: Any, ticket: Any) -> Any:
        """Return the stream of rows of a ticket."""
        name, command = unpacked(ticket.ticket)
        if schema_of(name, command) is not None:
            return fl.RecordBatchStream(self._metadata.answer(name, command))
        if name != "TicketStatementQuery":
            raise NoMessage(f"{name} is no ticket")
        statement = self._tickets.of(owner_of(context), command.statement_handle)
        opened = self._queries.take(statement.key) or self._queries.open(statement.source(), context)
        return fl.GeneratorStream(opened.schema, self._queries.rows(opened, statement.key, context))

    @_answering
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Bind parameters to a prepared statement, which gets another handle. Refuse all commands that would change data."""
        name, command = _command(descriptor)
        match name:
            case "CommandPreparedStatementQuery":
                statement = self._statement(name, command, context).with_parameters(_read(reader))
                handle = self._prepared_ones.keep(owner_of(context), statement)
                result = message("DoPutPreparedStatementResult", prepared_statement_handle=handle)
                writer.write(result.SerializeToString())
            case "CommandStatementUpdate" | "CommandPreparedStatementUpdate":
                # A statement that is no query is refused here, with its position.
                self._queries.schema(self._statement(name, command, context).described(), context)
                raise QueryError("a query changes nothing", hint="Run it as a query, which has a result.")
            case _:
                raise fl.FlightUnauthorizedError("clients only read")

    @_answering
    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Run an action: prepare or close a statement, cancel a query, begin or end a transaction, which does nothing."""
        # An iterator of a list: errors of a generator would not become errors of Flight.
        return iter(self._acted(context, action.type, action.body.to_pybytes()))

    def _acted(self, context: Any, kind: str, body: bytes) -> list[bytes]:
        if kind == "CancelFlightInfo":
            is_cancelled = self._cancelled(parsed("CancelFlightInfoRequest", body).info, context)
            result = message("CancelFlightInfoResult", status=_CANCELLED if is_cancelled else _NOT_CANCELLABLE)
            return [result.SerializeToString()]
        if kind not in _ACTIONS:
            raise NoMessage(f'the action "{kind}" is not supported')
        name, request = unpacked(body)
        if name != f"Action{kind}Request":
            raise NoMessage(f'the action "{kind}" does not take {name}')
        match kind:
            case "CreatePreparedStatement":
                return [self._prepared(FlightStatement(request.query), context)]
            case "ClosePreparedStatement":
                self._prepared_ones.forget(owner_of(context), request.prepared_statement_handle)
            case "BeginTransaction":
                return [packed("ActionBeginTransactionResult", transaction_id=secrets.token_bytes(16))]
            case "CancelQuery":
                is_cancelled = self._cancelled(request.info, context)
                return [packed("ActionCancelQueryResult", result=_CANCELLED if is_cancelled else _NOT_CANCELLABLE)]
        return []

    def _prepared(self, statement: FlightStatement, context: Any) -> bytes:
        statement.check()
        columns = self._columns(statement, context)
        handle = self._prepared_ones.keep(owner_of(context), statement)
        return packed(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=handle,
            dataset_schema=columns.serialize().to_pybytes() if columns is not None else b"",
            parameter_schema=statement.parameter_schema().serialize().to_pybytes(),
            is_update=False,
        )

    def _columns(self, statement: FlightStatement, context: Any) -> pa.Schema | None:
        """Return the columns of a statement; None if its parameters determine them, as in `AT (VERSION => ?)`."""
        source = statement.described()
        try:
            return self._queries.schema(source, context)
        except SqlStreamError:
            if not statement.count:
                raise
            return None

    def _cancelled(self, info: bytes, context: Any) -> bool:
        try:
            endpoints = fl.FlightInfo.deserialize(info).endpoints
        except pa.ArrowException as error:
            raise NoMessage("this is no information of Flight") from error
        tickets = [unpacked(endpoint.ticket.ticket) for endpoint in endpoints]
        handles = [t.statement_handle for name, t in tickets if name == "TicketStatementQuery"]
        statements = [self._tickets.of(owner_of(context), handle) for handle in handles]
        cancelled = [self._queries.cancel(statement.key) for statement in statements]
        return any(cancelled)

    @_answering
    def list_actions(self, context: Any) -> list[Any]:
        """Return the actions that `do_action` runs."""
        return [fl.ActionType(name, text) for name, text in _ACTIONS.items()]

    @_answering
    def list_flights(self, context: Any, criteria: bytes) -> Any:
        """Raises NoMessage: Flight SQL has commands that list tables."""
        raise NoMessage("tables are listed with commands of Flight SQL")

    @_answering
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Raises NoMessage: Flight SQL has no exchanges."""
        raise NoMessage("Flight SQL exchanges nothing")


def _command(descriptor: Any) -> tuple[str, Any]:
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise NoMessage("a descriptor has no command of Flight SQL")
    return unpacked(descriptor.command)


def _info(schema: pa.Schema, descriptor: Any, ticket: bytes) -> Any:
    # Without a location, clients fetch from this server.
    return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])], -1, -1)


def _read(reader: Any) -> pa.Table:
    batches, size = [], 0
    for chunk in reader:
        check_rows(chunk.data)
        batches.append(chunk.data)
        size += chunk.data.nbytes
        if size > MOST_BYTES:
            raise QueryError(f"parameters have {MOST_BYTES} bytes at most")
    return pa.Table.from_batches(batches, reader.schema)
