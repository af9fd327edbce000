"""A server beside a job, like a feature or object store. Answers each request after a delay, in parallel or one by one."""

from __future__ import annotations

import json
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any


def serve(ms: float, one_by_one: bool, ready: Connection) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(ms / 1000)
            body = json.dumps([0.5] * 8).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = (HTTPServer if one_by_one else ThreadingHTTPServer)(("127.0.0.1", 0), Answers)
    ready.send(server.server_port)
    server.serve_forever()


def start(ms: float, *, one_by_one: bool = False) -> tuple[BaseProcess, str]:
    """Starts the server. Returns its process, which ends with this one, and its address."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(ms, one_by_one, there), daemon=True)
    process.start()
    return process, f"http://127.0.0.1:{here.recv()}/"
