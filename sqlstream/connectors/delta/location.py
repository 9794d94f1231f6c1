"""The location of a Delta table, on a local disk or in an object store, and how it is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import fs as arrow_fs

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.delta.confinement import check_all_named, check_log, check_named, check_tree, named_files
from sqlstream.connectors.lakes.libraries import library
from sqlstream.connectors.uris import is_remote, local_path
from sqlstream.errors import JobError, UsageError
from sqlstream.secrets import harmless

# The options with this prefix go to the library, for the object store.
STORAGE = "storage."


def deltalake(table: Table) -> Any:
    """Return the module `deltalake`. Raises UsageError if it is not installed."""
    return library("delta", table)


@contextmanager
def errors(table: Table, doing: str) -> Iterator[None]:
    """Turn errors of the library and of files into JobError; `doing` is what failed, such as "reading"."""
    library = deltalake(table)
    try:
        yield
    except (library.exceptions.DeltaError, OSError, ValueError, pa.ArrowException) as error:
        message = f'table "{table.name}": {doing} "{table.options["path"]}" failed'
        raise JobError(message, detail=str(error).strip()) from harmless(error)


@dataclass(frozen=True)
class Location:
    """A Delta table by its absolute path or URI, with the library's options for its object store (`storage`)."""

    table: Table
    uri: str
    storage: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, table: Table, project: str) -> Location:
        """Return the location that a table's option `path` names, relative to the project.

        Raises DataError if it leads outside of the folders in which the table's files may be.
        """
        path = table.options["path"]
        remote = is_remote(path) and not path.lower().startswith("file://")
        storage = {k.removeprefix(STORAGE): v for k, v in table.options.items() if k.startswith(STORAGE)}
        uri = path if remote else local_path(path, project)
        check_files(table, [uri])
        return cls(table, uri, storage)

    @property
    def is_local(self) -> bool:
        return not is_remote(self.uri)

    def check_log(self) -> None:
        """Raise DataError if the log leads outside of the folders in which the table's files may be."""
        if self.is_local:
            with errors(self.table, "opening"):
                check_log(self.table, self.uri)

    def check_folder(self) -> None:
        """Raise DataError if a link in the table's folder leads outside of the folders in which its files may be."""
        if self.is_local:
            with errors(self.table, "opening"):
                check_tree(self.table, self.uri)

    def check_named(self, paths: Iterable[str]) -> None:
        """Raise DataError if a file, as the log names it, is outside of the folders in which the table's files may be."""
        if self.is_local:
            with errors(self.table, "reading"):
                check_named(self.table, self.uri, paths)

    def check_data(self, delta: Any) -> None:
        """Raise DataError if a data file of an open table is outside of the folders in which the table's files may be."""
        if self.is_local and self.table.within:
            self.check_named(pa.table(delta.get_add_actions())["path"].to_pylist())

    def check_vectors(self) -> None:
        """Raise DataError if the log names a deletion vector, or another file, outside of where the table's files may be."""
        if self.is_local:
            with errors(self.table, "reading"):
                check_all_named(self.table, self.uri)

    def check_changes(self, version: int) -> None:
        """Raise DataError if a version names a file outside of the folders in which the table's files may be."""
        if self.is_local and self.table.within:
            with errors(self.table, "reading changes of"):
                actions = self.actions(self.filesystem(), version)
            self.check_named(named_files(actions or ()))

    def exists(self) -> bool:
        """Whether there is a Delta table. Raises JobError if the library cannot tell, DataError as `check_log` does."""
        self.check_log()
        with errors(self.table, "opening"):
            return bool(deltalake(self.table).DeltaTable.is_deltatable(self.uri, storage_options=dict(self.storage)))

    def open(self, version: int | None = None) -> Any:
        """Return a DeltaTable at its newest version, or at `version`.

        Raises UsageError if there is no table, JobError if it cannot be opened, DataError as `check_log` does.
        """
        self.check_log()
        library = deltalake(self.table)
        try:
            with errors(self.table, "opening"):
                return library.DeltaTable(self.uri, version=version, storage_options=dict(self.storage))
        except JobError as error:
            if isinstance(error.__cause__, library.exceptions.TableNotFoundError):
                message = f'table "{self.table.name}": there is no Delta table at "{self.table.options["path"]}"'
                hint = "Set 'sink.create-table' = 'true' to let the job that writes it create it."
                raise UsageError(message, self.table.span, hint=hint) from error
            raise

    def filesystem(self) -> arrow_fs.FileSystem:
        """Return a file system whose paths are relative to the table. Raises JobError if that fails."""
        deltalake(self.table)
        from deltalake.fs import DeltaStorageHandler

        with errors(self.table, "opening"):
            return arrow_fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.storage)))

    def upload(self, file: str, path: str) -> None:
        """Copy a local file to a path below the table. Raises JobError if that fails."""
        from deltalake.fs import DeltaStorageHandler

        with errors(self.table, "writing"), open(file, "rb") as here:
            # pyarrow hands buffers to the library's stream, which takes only bytes.
            there: Any = DeltaStorageHandler(self.uri, dict(self.storage))._handler.open_output_stream(path, None)
            while piece := here.read(8 << 20):
                there.write(piece)
            there.close()

    def actions(self, files: arrow_fs.FileSystem, version: int) -> list[Mapping[str, Any]] | None:
        """Return the actions of a version from the table's log, as Delta's protocol defines them; None if the log lacks it.

        `files` is the table's `filesystem()`.
        """
        try:
            with files.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                lines = stream.read().decode().splitlines()
        except FileNotFoundError:
            return None
        return [json.loads(line) for line in lines if line.strip()]
