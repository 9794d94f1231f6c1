"""The end of a Python worker of Spark: resources of user functions are closed once and wholly, however Spark hangs up."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

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
    assert worker.wait(30) == -signal.SIGHUP


def test_a_second_signal_does_not_cut_the_first_short(worker: subprocess.Popen[str]) -> None:
    assert _go_on(worker) == "in the task"
    worker.send_signal(signal.SIGHUP)
    assert _said(worker) == "closing"
    worker.send_signal(signal.SIGHUP)
    assert _go_on(worker) == "closed"
    assert worker.wait(30) == -signal.SIGHUP


def test_a_signal_does_not_disturb_an_end_by_socket(worker: subprocess.Popen[str]) -> None:
    assert _go_on(worker) == "in the task"
    assert _go_on(worker) == "closing"
    worker.send_signal(signal.SIGHUP)
    assert _go_on(worker) == "closed"
    assert worker.wait(30) == 255
