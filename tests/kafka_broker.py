"""A Kafka broker on this machine, for tests and demos: a real one, of a single node, from the jars of Maven Central.

`python -m tests.kafka_broker` fetches the jars into the user's cache. A broker needs Java 17 or newer and 300 MB of
memory, and starts in one or two seconds. It keeps its files in a folder that the caller gives, and listens on 127.0.0.1 only.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2"
JARS = Path(__file__).with_name("kafka_jars.txt")
START_SECONDS = 240.0

_CONTROLLER = "CONTROLLER"
# Who may log in at a broker that `shared_broker` starts: the secured listener is for tests.
USERS = {"ann": "correct-horse"}

# A node that is broker and controller; its internal topics have one copy and one partition, and buffers are small.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": _CONTROLLER,
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Messages may have times of years ago, which would be an age to delete them.
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "1048576",
}


# What a JVM gets that starts fast and takes little memory.
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class BrokerError(Exception):
    """A broker that does not start, or jars that cannot be had."""


def cache_folder() -> Path:
    """Return where the jars are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sqlstream"


def fetch_jars(listed: Path = JARS, name: str = "kafka") -> list[Path]:
    """Return Kafka's jars, or those of another list, downloaded once, each with the checksum that the list has for it."""
    wanted = [line.split() for line in listed.read_text().splitlines()]
    # Another list of jars is another folder.
    folder = cache_folder() / f"{name}-{hashlib.sha256(listed.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda jar: _download(jar[1], jar[0], Path(partial)), wanted))
            os.chmod(partial, 0o755)
            # Another process may have been faster.
            with contextlib.suppress(OSError):
                os.rename(partial, folder)
            Path(partial).mkdir(exist_ok=True)
    return [folder / Path(path).name for _, path in wanted]


def _download(path: str, checksum: str, folder: Path) -> None:
    url = f"{REPOSITORY}/{path}"
    for attempt in range(3):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data = answer.read()
            break
        except (OSError, urllib.error.URLError) as error:
            if attempt == 2:
                raise BrokerError(f"{url} cannot be downloaded: {error}") from error
            time.sleep(1)
    if hashlib.sha256(data).hexdigest() != checksum:
        raise BrokerError(f"{url} does not have the checksum {checksum}")
    (folder / Path(path).name).write_bytes(data)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Broker:
    """A broker of a folder. It keeps its ports, its topics and its transactions when it is stopped and started again.

    With `users` (passwords by names) it has a listener SASL_PLAINTEXT, too; its option `listeners` has the address. PLAIN is for
    these users, SCRAM-SHA-256 for those that are made later. With `certificate` it has a listener SSL, where clients need a
    certificate of their own, and with `users` a listener SASL_SSL. That is a PEM file with a key, its certificate, and the
    certificate of the authority that gave it, which is the authority of clients, too.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        java: Sequence[str] = SMALL,
        users: Mapping[str, str] | None = None,
        certificate: Path | None = None,
    ):
        self.folder = folder
        self._options = java
        self._properties = dict(properties or {})
        self._users, self._certificate = dict(users or {}), certificate
        names = ["PLAINTEXT", _CONTROLLER, *(["SASL_PLAINTEXT"] if users else [])]
        if certificate is not None:
            names += ["SSL", *(["SASL_SSL"] if users else [])]
        self._ports = {name: free_port() for name in names}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """What clients name as `bootstrap.servers`."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """Return the address of a listener: PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker, and return when it listens. Raises BrokerError where it does not come so far."""
        jars = fetch_jars()
        config = self._configure()
        with open(self.folder / "broker.log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._java(jars), "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                lines = (self.folder / "broker.log").read_text(errors="replace").splitlines()
                raise BrokerError("\n".join(["the Kafka broker does not start:", *lines[-20:]]))
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the broker as an operator would: it writes down what it has in memory."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End the broker at once, as a crash would. A single node may lose a transaction that is being committed meanwhile."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _configure(self) -> Path:
        data = self.folder / "data"
        if not data.exists():
            data.mkdir(parents=True)
            ids = {"cluster.id": _uuid(), "directory.id": _uuid()}
            _write(data / "meta.properties", {"version": "1", "node.id": "1", **ids})
        protocols = {**{name: name for name in self._ports}, _CONTROLLER: "PLAINTEXT"}
        addresses = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "controller.quorum.voters": f"1@{self.address(_CONTROLLER)}",
            "log.dirs": str(data),
        }
        own = {**addresses, **self._logins(), **self._encryption(), **self._properties}
        return _write(self.folder / "server.properties", {**_PROPERTIES, **own})

    def _logins(self) -> dict[str, str]:
        if not self._users:
            return {}
        known = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        modules = "org.apache.kafka.common.security"
        found = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
        for listener in (name.lower() for name in self._ports if name.startswith("SASL_")):
            own = f"listener.name.{listener}"
            found[f"{own}.plain.sasl.jaas.config"] = f"{modules}.plain.PlainLoginModule required {known};"
            found[f"{own}.scram-sha-256.sasl.jaas.config"] = f"{modules}.scram.ScramLoginModule required;"
        return found

    def _encryption(self) -> dict[str, str]:
        if self._certificate is None:
            return {}
        stores = {f"ssl.{kind}store.location": str(self._certificate) for kind in ("key", "trust")}
        types = {f"ssl.{kind}store.type": "PEM" for kind in ("key", "trust")}
        return {**stores, **types, "listener.name.ssl.ssl.client.auth": "required"}

    def _java(self, jars: list[Path]) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
        if java is None or not os.path.exists(java):
            raise BrokerError("a Kafka broker needs Java 17 or newer: install it, or set JAVA_HOME")
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [java, *self._options, level, "-cp", ":".join(map(str, jars))]

    def _listens(self) -> bool:
        with socket.socket() as client:
            client.settimeout(1)
            return client.connect_ex(("127.0.0.1", self._ports["PLAINTEXT"])) == 0


def _uuid() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _write(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


@contextlib.contextmanager
def shared_broker(folder: Path) -> Iterator[str]:
    """Yield the address of a broker that the processes of a folder share, from the first that asks for it to the last that ends.

    A process uses the broker as long as it holds a shared lock, so it does not matter how it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "start.lock", "w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        users, home = _running(folder) or _started(folder)
    with users:
        yield (home / "servers").read_text()


def _running(folder: Path) -> tuple[contextlib.ExitStack, Path] | None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        home = Path((folder / "current").read_text())
        users = stack.enter_context(open(home / "users"))
        # The keeper of a broker that ends holds it alone.
        fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if (home / "servers").exists():
            return stack.pop_all(), home
    return None


def _started(folder: Path) -> tuple[contextlib.ExitStack, Path]:
    home = Path(tempfile.mkdtemp(prefix="broker-", dir=folder))
    with contextlib.ExitStack() as stack:
        users = stack.enter_context(open(home / "users", "w"))
        fcntl.flock(users, fcntl.LOCK_SH)
        keeper = subprocess.Popen(
            [sys.executable, __file__, "keep", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert keeper.stderr is not None
        while not (home / "servers").exists():
            if keeper.poll() is not None:
                raise BrokerError(keeper.stderr.read().decode(errors="replace"))
            time.sleep(0.02)
        (folder / "current").write_text(str(home))
        return stack.pop_all(), home


def _keep(home: Path) -> None:
    """Run a broker until nobody uses it any more."""
    with Broker(home, users=USERS) as broker:
        (home / "servers.new").write_text(broker.servers)
        os.rename(home / "servers.new", home / "servers")
        with open(home / "users", "r+") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (home / "servers").unlink()
            broker.stop()
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        _keep(Path(sys.argv[2]))
    else:
        try:
            fetch_jars()
        except BrokerError as error:
            sys.exit(f"error: {error}")
