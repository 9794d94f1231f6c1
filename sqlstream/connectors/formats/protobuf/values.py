"""Reads Protobuf values: all of the message type that the table names, or with the id of a registry's schema in front.

ptars decodes all messages of a type at once into Arrow. In the registry's wire format, the position of the message type in its
file follows the id: a number of indexes, and the indexes, one per level of nesting; or a single 0 for the first type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import descriptor_pool, message
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.decoded import DecodedValues, bytes_of, relation
from sqlstream.connectors.formats.protobuf.schema_files import DESCRIPTORS, SCHEMA, declared_files
from sqlstream.connectors.formats.schema_registry import (
    HEAD,
    NoSchema,
    RegisteredSchema,
    SchemaRegistry,
    by_schema,
    subject_of,
)
from sqlstream.distribution import install_command
from sqlstream.duck import databases
from sqlstream.duck.sql import Relation
from sqlstream.errors import DataError, UsageError, missing

if TYPE_CHECKING:
    import duckdb

PROTOBUF, CONFLUENT = "protobuf", "protobuf-confluent"
MESSAGE_NAME = "message-name"
_WELL_KNOWN = "google/protobuf/"
# The most bytes of a number in front of a message, of 32 bits, and the most levels of nesting; compilers stop at 32.
_NUMBER_BYTES, _LEVELS = 5, 64


@dataclass(frozen=True, slots=True)
class ProtobufType:
    """A message type. `handler` is what ptars decodes and encodes it with, and `name` its name in errors."""

    descriptor: Descriptor
    handler: Any
    name: str

    @classmethod
    def of(cls, descriptor: Descriptor, name: str, table: Table) -> ProtobufType:
        """Return the type of a descriptor. Raises UsageError unless the package ptars is installed."""
        try:
            import ptars
        except ImportError as error:
            hint = f"Install it: {install_command('protobuf')}."
            raise UsageError(f'table "{table.name}": Protobuf needs the package "ptars"', hint=hint) from error
        config = ptars.PtarsConfig(timestamp_unit="us", time_unit="us", duration_unit="us", enum_repr="string")
        pool = ptars.HandlerPool([descriptor.file], config=config)
        return cls(descriptor, pool.get_for_message(descriptor), name)

    def decode(self, messages: Sequence[bytes], numbers: Sequence[int]) -> DecodedValues:
        """Decode messages; `numbers` are their indexes among all values, see `DecodedValues`."""
        try:
            return DecodedValues(self.name, self._rows(messages), numbers)
        except ValueError:
            good, faults = [], dict[int, str]()
        for number, body in zip(numbers, messages, strict=True):
            try:
                self._rows([body])
                good.append((number, body))
            except ValueError as error:
                faults[number] = f"The value is no message of {self.name}: {error}"
        return DecodedValues(self.name, self._rows([body for _, body in good]), [number for number, _ in good], faults)

    def _rows(self, messages: Sequence[bytes]) -> pa.Table:
        return pa.Table.from_batches([self.handler.list_to_record_batch(list(messages))])

    def columns(self) -> list[Column]:
        """Return the type's fields as columns, for a table that declares none."""
        with databases.passing() as con:
            schema: pa.Schema = self.handler.schema()
            con.register("_schema", schema.empty_table())
            types = con.sql("FROM _schema").types
            return [Column(name, str(type_)) for name, type_ in zip(schema.names, types, strict=True)]


def protobuf_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values that are messages of the type in the table's options, see `ReadValues`."""
    messages, rest = bytes_of(con, values, passthrough)
    numbers = [number for number, body in enumerate(messages) if body is not None]
    absent = {n: "There is no value" for n, body in enumerate(messages) if body is None}
    decoded = declared_type(table).decode([messages[n] for n in numbers], numbers)
    return relation(con, table, columns, rest, [decoded, DecodedValues("", rest.slice(0, 0), (), absent)], {})


def confluent_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values with the id of a registry's schema in front, see `ReadValues`."""
    messages, rest = bytes_of(con, values, passthrough)
    registry = SchemaRegistry.of(table, CONFLUENT)
    groups, faults = by_schema(messages)
    decoded = []
    for id, numbers in groups.items():
        try:
            schema = registry.by_id(id, serialized=True)
        except NoSchema:
            faults |= dict.fromkeys(numbers, f"The registry has no schema {id}")
            continue
        bodies: dict[tuple[int, ...], list[tuple[int, bytes]]] = {}
        for number in numbers:
            try:
                index_path, start = _index_path(messages[number])
                bodies.setdefault(index_path, []).append((number, messages[number][start:]))
            except ValueError:
                faults[number] = "The value does not say which message of its schema it is"
        for index_path, pairs in bodies.items():
            type_ = _registered(schema, f"schema {id}", index_path, table)
            if type_ is None:
                faults |= dict.fromkeys((n for n, _ in pairs), f"Schema {id} has no message at {list(index_path)}")
            else:
                decoded.append(type_.decode([body for _, body in pairs], [number for number, _ in pairs]))
    decoded.append(DecodedValues("", rest.slice(0, 0), (), faults))
    return relation(con, table, columns, rest, decoded, {})


def columns_of(table: Table, format: str) -> Sequence[Column]:
    """Return the columns of a table that declares none: of its message type, or of its subject's newest schema."""
    return declared_type(table).columns() if format == PROTOBUF else _newest_there(table).columns()


def declared_type(table: Table) -> ProtobufType:
    """Return the message type in a table's options, from the file in its options.

    Raises what `declared_files` raises, and DataError if no type is named, or the file does not have it.
    """
    files, name = declared_files(table), table.options.get(f"{PROTOBUF}.{MESSAGE_NAME}")
    if not name:
        hint = "Write the name of a message of the file into WITH (..), as package.Message."
        raise DataError(f'table "{table.name}" needs the option "{PROTOBUF}.{MESSAGE_NAME}"', hint=hint)
    try:
        descriptor = pool_of(files).FindMessageTypeByName(name)
    except (KeyError, TypeError) as error:
        path = table.options.get(SCHEMA) or table.options[DESCRIPTORS]
        at = table.option_span(f"{PROTOBUF}.{MESSAGE_NAME}", value=True)
        hint = missing("message", name, _message_names(files))
        raise DataError(f'file "{path}" of table "{table.name}" has no message "{name}"', at, hint=hint) from error
    return ProtobufType.of(descriptor, f"message {name}", table)


def _message_names(files: Sequence[bytes]) -> list[str]:
    """Return the full names of the message types in files, without the files of Protobuf itself."""
    file_protos = [FileDescriptorProto.FromString(text) for text in files]
    pool = pool_of(tuple(files))
    own = [pool.FindFileByName(file.name) for file in file_protos if not file.name.startswith(_WELL_KNOWN)]
    return [message.full_name for file in own for _, message in _messages(file)]


def _newest_there(table: Table) -> ProtobufType:
    subject = subject_of(table, CONFLUENT, table.options.get(f"{CONFLUENT}.{MESSAGE_NAME}", table.name))
    try:
        return newest_type(table, subject).type
    except NoSchema as error:
        message = f'table "{table.name}": the schema registry has no subject "{subject}"'
        raise DataError(message, detail=f"{error}.", hint=f"Register it, or set '{CONFLUENT}.subject'.") from None


@dataclass(frozen=True, slots=True)
class RegisteredType:
    """A message type of a registry's schema, with the schema's id, and the type's position in it."""

    type: ProtobufType
    id: int
    index_path: tuple[int, ...]


def newest_type(table: Table, subject: str) -> RegisteredType:
    """Return the message type of a subject's newest schema that the options name, or else the first.

    Raises NoSchema if the subject has no schema, and DataError if the schema does not have the type.
    """
    schema = SchemaRegistry.of(table, CONFLUENT).newest(subject, serialized=True)
    name = f'the schema of subject "{subject}"'
    message_name = table.options.get(f"{CONFLUENT}.{MESSAGE_NAME}")
    for index_path, descriptor in _messages(_file(schema, name)):
        if message_name in (None, descriptor.full_name):
            return RegisteredType(ProtobufType.of(descriptor, name, table), schema.id, index_path)
    raise DataError(f'{name} has no message "{message_name}"')


def _messages(file: FileDescriptor) -> Sequence[tuple[tuple[int, ...], Descriptor]]:
    """Return (position, message type) of the types in a file, nested types behind the type that contains them."""

    def inside(descriptor: Descriptor, index_path: tuple[int, ...]) -> list[tuple[tuple[int, ...], Descriptor]]:
        pairs = [(index_path, descriptor)]
        for number, nested in enumerate(descriptor.nested_types):
            pairs += inside(nested, (*index_path, number))
        return pairs

    listed = list(file.message_types_by_name.values())
    return [pair for number, descriptor in enumerate(listed) for pair in inside(descriptor, (number,))]


@lru_cache(maxsize=1024)
def _types(schema: RegisteredSchema, name: str, index_path: tuple[int, ...]) -> Descriptor | None:
    return dict(_messages(_file(schema, name))).get(index_path)


def _registered(schema: RegisteredSchema, name: str, index_path: tuple[int, ...], table: Table) -> ProtobufType | None:
    descriptor = _types(schema, name, index_path)
    return None if descriptor is None else ProtobufType.of(descriptor, name, table)


def _file(schema: RegisteredSchema, name: str) -> FileDescriptor:
    """Return the file of a schema. Raises DataError unless the registry has returned the schema as a descriptor."""
    if schema.kind != "PROTOBUF":
        raise DataError(f"{name} is {schema.kind}, not Protobuf")
    try:
        files = [*_files(schema)]
        return pool_of(tuple(file.SerializeToString() for file in files)).FindFileByName(files[-1].name)
    except (binascii.Error, message.DecodeError, TypeError, KeyError) as error:
        detail = f"The registry must know format=serialized: {error}."
        raise DataError(f"{name} is no descriptor of Protobuf", detail=detail) from error


def _files(schema: RegisteredSchema, name: str = "main.proto") -> Sequence[FileDescriptorProto]:
    """Return the files of the schemas that a schema imports, by the names that it imports, and then its own file."""
    file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    file.name = name
    return [*(f for own, reference in schema.references for f in _files(reference, own)), file]


@lru_cache(maxsize=256)
def pool_of(files: tuple[bytes, ...]) -> descriptor_pool.DescriptorPool:
    """Return a pool of serialized files, ordered by their imports, and of the files of Protobuf itself that they import."""
    # To import them adds their files to Protobuf's own pool.
    from google.protobuf import (  # noqa: F401
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    pool, added = descriptor_pool.DescriptorPool(), set[str]()
    for text in files:
        file = FileDescriptorProto.FromString(text)
        for name in [n for n in file.dependency if n.startswith(_WELL_KNOWN) and n not in added]:
            pool.AddSerializedFile(descriptor_pool.Default().FindFileByName(name).serialized_pb)
            added.add(name)
        if file.name not in added:
            pool.AddSerializedFile(text)
            added.add(file.name)
    return pool


def _index_path(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return (indexes of a value's message type, offset of its message). Raises ValueError if the indexes are malformed.

    >>> _index_path(b"....." + b"\\0x"), _index_path(b"....." + b"\\x04\\x02\\x00x")
    (((0,), 6), ((1, 0), 8))
    """
    count, at = _number(value, HEAD)
    if not 0 <= count <= _LEVELS:
        raise ValueError(f"{count} levels of nesting")
    numbers = []
    for _ in range(count):
        number, at = _number(value, at)
        numbers.append(number)
    return tuple(numbers) or (0,), at


def _number(value: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at an index, and the index behind it. Raises ValueError if it is cut off, or too long."""
    whole = 0
    for index_path, byte in enumerate(value[at : at + _NUMBER_BYTES]):
        whole |= (byte & 127) << 7 * index_path
        if byte < 128:
            return (whole >> 1) ^ -(whole & 1), at + index_path + 1
    raise ValueError("a number that is cut off, or too long")
