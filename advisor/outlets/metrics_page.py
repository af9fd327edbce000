"""Serves a run's series to Prometheus: one page, at /metrics, only where `--metrics-listen` says.

Whoever floods the port harms neither the run nor the job: few requests are served at a time, none for long, in a process beside both.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rn50_advisor.advisor.merge.live_merge import parse_address
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets.outlet import Outlet, RunReading, check_installed
from rn50_advisor.advisor.outlets.prometheus_text import NewestReading, registry_of

ADDRESS_NAME = "metrics.address"  # in the run's folder while it listens: the address, where the system chose the port
PAGE = "/metrics"
_OWN_HOST = "127.0.0.1"  # where only a port is given
_AT_ONCE_MAX = 4  # a Prometheus pair and somebody who looks
_LOOK_S = 0.1  # whether it shall end
_IDLE_S = 5.0  # a client that says or takes nothing for so long is dropped
_SERVED_WITHIN_S = 10.0  # as long as Prometheus waits; one that says a byte a second would hold a place for hours


class MetricsPage(Outlet):
    name = "metrics.listen"

    def __init__(self, address: str) -> None:
        """Raises UsageError."""
        host, port = parse_address(address if ":" in address else f"{_OWN_HOST}:{address}")
        self._address = (host, port)
        self.place = f"{f'[{host}]' if ':' in host else host}:{port}"
        self._newest = NewestReading()
        self._server: _Server | None = None
        self._note: Path | None = None

    def check(self) -> None:
        check_installed("--metrics-listen")
        try:
            _Server(self._address, self._newest).server_close()
        except OSError as error:
            raise UsageError(
                f"--metrics-listen {self.place}: {error.strerror or error}", "name another port"
            ) from error
        except ValueError as error:  # what no name server would be asked for
            raise UsageError(f"--metrics-listen: {self.place!r} is no host name", "name an address") from error

    def open(self, run: Path) -> None:
        import prometheus_client.exposition  # noqa: F401, PLC0415 - before a client waits for it

        self._server = _Server(self._address, self._newest)
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), name="rn50-page", daemon=True).start()
        host, port, *_ = self._server.server_address
        self._note = run / ADDRESS_NAME
        self._note.write_text(f"{f'[{host!s}]' if ':' in str(host) else host!s}:{port}\n")

    def deliver(self, reading: RunReading) -> None:
        self._newest.reading = reading

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._note is not None:
            self._note.unlink(missing_ok=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], newest: NewestReading) -> None:
        """Raises OSError where the port is taken."""
        host, port = address
        family, *_, where = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        self.newest = newest
        self._free = threading.BoundedSemaphore(_AT_ONCE_MAX)
        super().__init__((str(where[0]), port), _Page)

    def server_bind(self) -> None:
        """Without the look-up of our own name that HTTPServer makes: a name server may not answer."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        late = threading.Timer(_SERVED_WITHIN_S, _cut_off, [request])
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


def _cut_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Page(BaseHTTPRequestHandler):
    timeout = _IDLE_S  # of the connection
    server: _Server

    def do_GET(self) -> None:
        if not self._is_asked_for_us():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, explain="ask by address, or as localhost")
            return
        if self.path.partition("?")[0] != PAGE:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"the metrics are at {PAGE}")
            return
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - an extra

        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        page = encode(registry_of(self.server.newest))
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def _is_asked_for_us(self) -> bool:
        """A page in a browser may reach this host's own ports under a name whose address it changed (DNS rebinding)."""
        try:
            if not ip_address(str(self.server.server_address[0]).partition("%")[0]).is_loopback:
                return True  # it listens to the network, by whatever name
            name = (urlsplit(f"//{self.headers.get('Host', '')}").hostname or "localhost").rstrip(".")
            return name in ("localhost", socket.gethostname().lower()) or bool(ip_address(name.partition("%")[0]))
        except ValueError:  # neither name nor address
            return False

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def version_string(self) -> str:
        return "rn50-advisor"
