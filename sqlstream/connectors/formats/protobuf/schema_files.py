"""Reads a table's message types from a file: descriptors that protoc has written, or a schema (`.proto`), which is compiled.

The compiler comes with grpcio-tools. It runs in a process of its own, as it writes its errors to stderr. A process compiles a
file once, and again after the file has changed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from functools import lru_cache

from google.protobuf import message
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from sqlstream.catalog import Table
from sqlstream.distribution import install_command
from sqlstream.errors import BindError, DataError, UsageError

DESCRIPTORS, SCHEMA, IMPORTS = "protobuf.descriptor-file", "protobuf.schema-file", "protobuf.import-path"
_SECONDS = 60
# An error of protoc: a file, a line, a column, and a message.
_ERROR = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?!warning)(?P<text>.+)$", re.MULTILINE)


class _CompilerError(Exception):
    """The compiler rejects a schema. The message is what it has written."""


def declared_files(table: Table) -> tuple[bytes, ...]:
    """Return the serialized file descriptors of the file that a table names, each after the files that it imports.

    Raises BindError for options that exclude each other, UsageError if the compiler is not installed, and DataError for a file
    that cannot be used.
    """
    if SCHEMA in table.options:
        if DESCRIPTORS in table.options:
            hint = "A schema is compiled, descriptors are used as they are: leave one out."
            span = table.option_span(DESCRIPTORS)
            raise BindError(f'table "{table.name}" has both "{SCHEMA}" and "{DESCRIPTORS}"', span, hint=hint)
        return _of_schema(table, table.options[SCHEMA])
    if IMPORTS in table.options:
        message = f'table "{table.name}": option "{IMPORTS}" has no meaning without "{SCHEMA}"'
        raise BindError(message, table.option_span(IMPORTS))
    path = table.options.get(DESCRIPTORS)
    if not path:
        hint = f"Write the file of protoc --descriptor_set_out, or '{SCHEMA}' with a .proto file, into WITH (..)."
        raise DataError(f'table "{table.name}" needs the option "{DESCRIPTORS}"', hint=hint)
    return _of_descriptors(table, path)


def _of_descriptors(table: Table, path: str) -> tuple[bytes, ...]:
    try:
        with open(path, "rb") as file:
            return _files(file.read())
    except OSError as error:
        raise _unreadable(table, path, error) from error
    except message.DecodeError as error:
        hint = "protoc --include_imports --descriptor_set_out=FILE writes one."
        raise DataError(f'file "{path}" of table "{table.name}" holds no descriptors', hint=hint) from error


def _files(text: bytes) -> tuple[bytes, ...]:
    return tuple(file.SerializeToString() for file in FileDescriptorSet.FromString(text).file)


def _unreadable(table: Table, path: str, error: OSError) -> DataError:
    return DataError(f'file "{path}" of table "{table.name}" cannot be read', detail=f"{error}.")


def _of_schema(table: Table, path: str) -> tuple[bytes, ...]:
    if importlib.util.find_spec("grpc_tools") is None:
        message = f'table "{table.name}": the option "{SCHEMA}" needs the package "grpcio-tools"'
        hint = f"Install it: {install_command('protoc')}; or run protoc yourself, and set '{DESCRIPTORS}'."
        raise UsageError(message, table.option_span(SCHEMA), hint=hint)
    import_paths = [folder.strip() for folder in table.options.get(IMPORTS, "").split(";") if folder.strip()]
    folders = tuple(os.path.abspath(folder) for folder in import_paths or [os.path.dirname(path) or "."])
    try:
        state = os.stat(path)
        return _compiled(os.path.abspath(path), folders, (state.st_mtime_ns, state.st_size))
    except OSError as error:
        raise _unreadable(table, path, error) from error
    except _CompilerError as error:
        span = table.option_span(SCHEMA, value=True)
        match = _ERROR.search(str(error))
        if match is None:
            raise DataError(
                f'file "{path}" of table "{table.name}" cannot be compiled', span, detail=str(error)
            ) from None
        position = f"line {match['line']}, column {match['column']}"
        where = (
            f'file "{path}"' if os.path.basename(match["file"]) == os.path.basename(path) else f'file "{match["file"]}"'
        )
        raise DataError(
            f'{where} of table "{table.name}" is no schema of Protobuf: {position}', span, detail=str(error)
        ) from None


@lru_cache(maxsize=64)
def _compiled(path: str, folders: tuple[str, ...], state: tuple[int, int]) -> tuple[bytes, ...]:
    """Compile a schema. Raises _CompilerError. `state` identifies the version of the file in the cache."""
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "descriptors")
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{folder}" for folder in folders)]
        command += ["--include_imports", f"--descriptor_set_out={out}", path]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if run.returncode:
            raise _CompilerError(run.stderr.strip() or run.stdout.strip() or f"protoc ended with {run.returncode}")
        with open(out, "rb") as file:
            return _files(file.read())
