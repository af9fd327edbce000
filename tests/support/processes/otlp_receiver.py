"""A small collector that decodes OTLP over HTTP and answers as told. Not a test."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")


class OtlpReceiver(ThreadingHTTPServer):
    """Takes OTLP as a collector does; answers as told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Takes)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.status = 200
        self.answering = threading.Event()
        self.answering.set()
        self.requests: list[tuple[str, dict[str, str], Any]] = []


class _Takes(BaseHTTPRequestHandler):
    server: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        document = service.ExportMetricsServiceRequest.FromString(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.path, headers, document))
        self.server.answering.wait(60.0)
        self.send_response(self.server.status)
        if 300 <= self.server.status < 400:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def attributes(of: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in of.attributes}
