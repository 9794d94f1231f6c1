"""Serves metrics of jobs over HTTP, for processes without a server of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, cast

from sqlstream.distribution import install_command
from sqlstream.errors import UsageError
from sqlstream.warehouse.paths import Warehouse

LOOPBACK = "127.0.0.1"


def registry(warehouse: Warehouse, jobs: Callable[[], Collection[str]] | None = None) -> Any:
    """Return a prometheus_client registry with the metrics of jobs (see `JobCollector`), and of this process.

    Raises UsageError when the library is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector

        from sqlstream.monitoring.collector import JobCollector
    except ImportError as error:
        hint = f"Install it: {install_command('metrics')}."
        raise UsageError(f"metrics need prometheus_client, which cannot be imported: {error}", hint=hint) from error
    metrics = CollectorRegistry()
    metrics.register(cast(Any, JobCollector(warehouse, jobs)))
    ProcessCollector(registry=metrics)
    return metrics


def exposition(of: Any) -> bytes:
    """Return the metrics of a registry in the text format of Prometheus, version 0.0.4."""
    from prometheus_client import generate_latest

    text: bytes = generate_latest(of)
    return text


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port in `PORT` or `HOST:PORT`; the default host is LOOPBACK. Raises UsageError.

    >>> parse_address("9464"), parse_address("0.0.0.0:9464"), parse_address("[::1]:0")
    (('127.0.0.1', 9464), ('0.0.0.0', 9464), ('::1', 0))
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise UsageError(f'--metrics "{text}" is neither PORT nor HOST:PORT', hint="Such as --metrics 9464.")
    return host.strip("[]") or LOOPBACK, int(port)


@contextmanager
def serving(address: tuple[str, int], of: Any) -> Iterator[int]:
    """Serve the metrics of a registry at `/metrics` within the block; yield the port. Raises UsageError if that fails."""
    from prometheus_client import start_http_server

    host, port = address
    try:
        server, thread = start_http_server(port, host, of)
    except OSError as error:
        hint = "Name another port; with 0 a free one is taken."
        raise UsageError(f"metrics cannot be served at {host}:{port}: {error.strerror}", hint=hint) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
