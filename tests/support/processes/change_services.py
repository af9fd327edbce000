"""A local stand-in for the comment APIs of GitHub and GitLab, and an endpoint that is dead, slow or refuses. Not a test."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Forge:
    """What the service holds and was asked. `status`: what it refuses everything with. `author`: of new comments."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)  # method, path
    sent: list[Any] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    status: int = 0
    answer: Any = None  # beside `status`
    location: str = ""  # of a redirect
    author: dict[str, Any] = field(
        default_factory=lambda: {"user": {"type": "Bot"}, "author_association": "NONE", "author": {"id": 7}}
    )

    @property
    def texts(self) -> list[str]:
        return [one["body"] for one in self.comments]


@contextlib.contextmanager
def forge(**given: Any) -> Iterator[Forge]:
    """Serves `/repos/o/r/issues/…` and `/projects/1/merge_requests/…` on a free port."""
    held = Forge(**given)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def answered(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length)) if length else None
            held.asked.append((self.command, self.path))
            held.sent.append(content)
            held.tokens.append(self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or "")
            status, answer = (
                (held.status, held.answer) if held.status else _answer(held, self.command, self.path, content)
            )
            data = json.dumps(answer).encode()
            self.send_response(status)
            if held.location:
                self.send_header("Location", held.location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = answered  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield held
        finally:
            server.shutdown()
            thread.join()


def _answer(held: Forge, method: str, path: str, content: Any) -> tuple[int, Any]:
    place = urlsplit(path)
    if place.path == "/user":
        return 200, {"id": held.author["author"]["id"]}
    if method == "GET":
        asked = {key: int(values[0]) for key, values in parse_qs(place.query).items() if values[0].isdecimal()}
        first = (asked["page"] - 1) * asked["per_page"]
        return 200, held.comments[first : first + asked["per_page"]]
    if method == "POST":
        held.comments.append({"id": len(held.comments) + 1, "body": content["body"], **held.author})
        return 201, held.comments[-1]
    number = int(place.path.rpartition("/")[2])
    held.comments[number - 1]["body"] = content["body"]
    return 200, held.comments[number - 1]


def dead_url() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def silent_url(*, drips: bool = False) -> Iterator[str]:
    """An address that takes connections and never answers; `drips`: a byte of an endless header line now and then."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.02)

        def serve() -> None:
            held = []
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    held.append(server.accept()[0])
                for one in held if drips else ():
                    with contextlib.suppress(OSError):
                        one.sendall(b"H")
            for one in held:
                one.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join()
