"""Python workers of Spark: how they read, and their end: resources of user functions are closed once and wholly."""

from __future__ import annotations

import io
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from sqlstream.spark.prompt_reads import prompt

# They wait for processes.
pytestmark = pytest.mark.slow

# A worker whose only resource says that it is being closed, waits for a word, and says that it is closed. What Spark's
# daemon and its tasks do stands here as they do it: signals are set back, then the task runs, then the socket ends.
WORKER = """
import os, signal, sys
import pyspark.daemon, pyspark.worker
import sqlstream.runtime.worker as worker
from sqlstream.spark.daemon import end_in_order

def say(text):
    os.write(1, f"{text}\\n".encode())

def wait():
    os.read(0, 1)

def release():
    say("closing")
    wait()
    say("closed")

def task(sock, authenticated):
    signal.signal(pyspark.daemon.SIGHUP, signal.SIG_DFL)
    say("before the task")
    wait()
    pyspark.worker.main(None, None)

def main(infile, outfile):
    say("in the task")
    wait()
    sys.exit(-1)

worker.release_resources, pyspark.daemon.worker, pyspark.worker.main = release, task, main
end_in_order()
pyspark.daemon.worker(None, True)
"""


SECONDS = 120


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", WORKER], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "before the task\n"
        yield process
        process.kill()


def _go_on(worker: subprocess.Popen[str]) -> str:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    return _said(worker)


def _said(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def test_a_signal_between_two_tasks_closes_the_resources(worker: subprocess.Popen[str]) -> None:
    worker.send_signal(signal.SIGHUP)
    assert _said(worker) == "closing"
    assert _go_on(worker) == "closed"
    assert worker.wait(SECONDS) == -signal.SIGHUP


def test_a_second_signal_does_not_cut_the_first_short(worker: subprocess.Popen[str]) -> None:
    assert _go_on(worker) == "in the task"
    worker.send_signal(signal.SIGHUP)
    assert _said(worker) == "closing"
    worker.send_signal(signal.SIGHUP)
    assert _go_on(worker) == "closed"
    assert worker.wait(SECONDS) == -signal.SIGHUP


def test_a_signal_does_not_disturb_an_end_by_socket(worker: subprocess.Popen[str]) -> None:
    assert _go_on(worker) == "in the task"
    assert _go_on(worker) == "closing"
    worker.send_signal(signal.SIGHUP)
    assert _go_on(worker) == "closed"
    assert worker.wait(SECONDS) == 255


# Workers that Spark hangs up on, and once more at the first, the second, the third .. step of what they do then.
AT_EACH_STEP = """
import os, signal, sys, threading
import pyspark.daemon, pyspark.worker
import sqlstream.runtime.worker as worker
from sqlstream.spark import daemon

def hang_up_at(step):
    def at_line(frame, event, _):
        nonlocal step
        if event == "line" and frame.f_code.co_filename in (daemon.__file__, threading.__file__):
            step -= 1
            if step == 0:
                os.kill(os.getpid(), signal.SIGHUP)
        return at_line
    sys.settrace(at_line)

def task(sock, authenticated):
    hang_up_at(step)
    os.kill(os.getpid(), signal.SIGHUP)

worker.release_resources, pyspark.daemon.worker = lambda: os.write(1, b"closed "), task
daemon.end_in_order()
for step in range(1, 16):
    if not (child := os.fork()):
        pyspark.daemon.worker(None, True)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGHUP
"""


def test_a_second_signal_may_come_at_each_step_of_the_first() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EACH_STEP], stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "closed " * 15)


def test_a_task_in_two_writes_is_not_kept_waiting() -> None:
    """Without it the second write waits for the kernel's delayed acknowledgement of the first: 40 ms for each task."""
    tasks, parts, answer = 21, (b"a" * 16_000, b"b" * 600), b"c" * 64
    seconds: list[float] = []

    def spark(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as answers:
            for _ in range(tasks):
                began = time.monotonic()
                for part in parts:
                    connection.sendall(part)
                answers.read(len(answer))
                seconds.append(time.monotonic() - began)

    def main(infile: io.BufferedReader, outfile: io.BufferedWriter) -> None:
        assert [infile.read(len(part)) for part in parts] == [*parts]
        outfile.write(answer)
        outfile.flush()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=spark, args=(socket.create_connection(server.getsockname()),))
        thread.start()
        connection, _ = server.accept()
        with connection:
            for _ in range(tasks):
                # As Spark's daemon opens them for each task.
                with open(os.dup(connection.fileno()), "rb") as infile, open(os.dup(connection.fileno()), "wb") as out:
                    prompt(main)(infile, out)
            thread.join(SECONDS)
    assert len(seconds) == tasks
    if sys.platform == "linux":
        assert statistics.median(seconds) < 0.03


def test_a_unix_domain_socket_is_read_as_it_is() -> None:
    """Spark has them if its user wants them; they know no acknowledgements."""
    given: list[io.BufferedReader] = []
    here, there = socket.socketpair()
    with here, there, here.makefile("rb") as infile, here.makefile("wb") as outfile:
        prompt(lambda infile, outfile: given.append(infile))(infile, outfile)
        assert given == [infile]


THREADS = """
import os
from sqlstream.spark import daemon
daemon.prefer_installed_pyspark()
daemon.preload()
daemon.end_in_order()
print(*(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")))
"""


def test_what_workers_are_forked_from_has_one_thread() -> None:
    """A fork loses all threads but one, and whatever lock another one holds stays locked for ever."""
    given = {"OMP_NUM_THREADS": "1"}  # as Spark starts it
    shown = subprocess.run(
        [sys.executable, "-c", THREADS], env={**os.environ, **given}, capture_output=True, text=True, check=True
    )
    assert len(shown.stdout.split()) == 1, shown.stdout
