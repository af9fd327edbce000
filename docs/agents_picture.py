"""Draws the picture of docs/how-to/agents.md: the demo's run in the MCP Inspector. `python -m docs.agents_picture`, half a minute.

The Inspector comes from the registry of npm into a temporary folder, so `make pictures` leaves the picture as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

from docs.chromium import find_browser

from rn50_advisor.advisor.commands.demo.demo import RUN

PICTURE = Path(__file__).parent / "pictures" / "inspector.png"
SIZE = 1105, 816  # pixels
SCALE = 0.85  # of a pixel of the page, so that the whole answer has room
SHOWN = "finding"  # the tool that is called
# The script below knows this version's page. It is the newest one for Node 20: 0.16.0 wants Node 22.7.5.
PACKAGES = "@modelcontextprotocol/inspector@0.15.0", "puppeteer-core@24.43.1"
# Uses the page as a person would: connects, lists the tools, calls one, folds the JSON, and makes room for the answer:
# the history below it gets its least height, and stays outside of the picture.
SCRIPT = """
import { launch } from "puppeteer-core";

const [browser, address, picture, width, height, scale, tool, token] = process.argv.slice(2);
const options = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"];
const chromium = await launch({ executablePath: browser, args: options });
const page = await chromium.newPage();
const shown = { x: 0, y: 0, width: Math.round(width / scale), height: Math.round(height / scale) };
const full = { width: shown.width, height: shown.height + 100 };
await page.setViewport({ ...full, deviceScaleFactor: Number(scale) });

const named = (text) => `//*[text()="${text}"]`;
const find = (path) => page.locator(`::-p-xpath((${path})[1])`);

async function drag(selector, x, y) {
  const box = await (await page.waitForSelector(selector)).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(x, y, { steps: 4 });
  await page.mouse.up();
}

try {
  await page.goto(address);
  for (const text of ["Connect", "List Tools", tool, "Run Tool"]) await find(named(text)).click();
  for (const text of ["Structured Content:", "Unstructured Content:"]) await find(`${named(text)}/..${named("{")}`).click();
  await drag("[class*=cursor-row-resize]", full.width / 2, full.height - 1);
  await page.mouse.move(0, 0);
  await page.evaluate(() => document.querySelectorAll("*").forEach((each) => { each.scrollTop = 0; }));
  await new Promise((drawn) => setTimeout(drawn, 500));
  const text = await page.evaluate(() => document.body.innerText);
  if (text.includes(token) || text.includes(process.cwd())) throw new Error("the page shows its token or this folder");
  await page.screenshot({ path: picture, clip: shown });
} finally {
  await chromium.close();
}
"""
_STARTS_WITHIN_S, _WITHIN_S = 30.0, 180.0


def main() -> None:
    browser = find_browser()
    found = {"Chromium": browser, **{name: shutil.which(name) for name in ("node", "npm")}}
    missing = [name for name, path in found.items() if path is None]
    missing += ["mcp (pip install '.[mcp]')"] if find_spec("mcp") is None else []
    if browser is None or missing:
        raise SystemExit(f"{PICTURE.name} is as it was: it wants {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as temporary:
        photograph_tools(browser, PICTURE, Path(temporary).resolve())


def photograph_tools(browser: str, picture: Path, folder: Path) -> None:
    """Installs the Inspector in `folder`, lays the run in its `runs`, and has the Inspector call the tool."""
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
    installed = subprocess.run(
        ["npm", "install", *quiet, *PACKAGES], check=False, cwd=folder, capture_output=True, timeout=_WITHIN_S
    )
    if installed.returncode:
        raise SystemExit(f"{picture.name} is as it was: npm could not install {' and '.join(PACKAGES)}")
    with tarfile.open(RUN) as bundle:
        bundle.extractall(folder / "runs", filter="data")
    script = folder / "photograph.mjs"
    script.write_text(SCRIPT, encoding="utf-8")
    with _inspector(folder) as (address, token):
        command = ["node", script.name, browser, address, str(picture), *map(str, (*SIZE, SCALE)), SHOWN, token]
        subprocess.run(command, cwd=folder, check=True, timeout=_WITHIN_S)


@contextmanager
def _inspector(folder: Path) -> Iterator[tuple[str, str]]:
    """The Inspector with our server as its command, run in `folder`: the address of its page, and the token of its session."""
    with socket.create_server(("127.0.0.1", 0)) as page, socket.create_server(("127.0.0.1", 0)) as proxy:
        page_port, proxy_port = page.getsockname()[1], proxy.getsockname()[1]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "CLIENT_PORT": str(page_port), "SERVER_PORT": str(proxy_port)}
    command = [str(folder / "node_modules" / ".bin" / "mcp-inspector"), "rn50-advisor", "mcp"]
    said = folder / "said"
    with said.open("wb") as output:
        inspector = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        token = _token(said)
        query = {"MCP_PROXY_AUTH_TOKEN": token, "MCP_PROXY_FULL_ADDRESS": f"http://127.0.0.1:{proxy_port}"}
        yield f"http://127.0.0.1:{page_port}/?{urlencode(query)}", token
    finally:
        os.killpg(inspector.pid, signal.SIGTERM)  # its proxy and its page are processes of their own
        inspector.wait()


def _token(said: Path) -> str:
    """Waits until the page is served. Raises TimeoutError."""
    until_s = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < until_s:
        text = said.read_text(encoding="utf-8", errors="replace")
        if (found := re.search(r"Session token: (\w+)", text)) and "up and running" in text:
            return found[1]
        time.sleep(0.1)
    raise TimeoutError("the Inspector did not start")


if __name__ == "__main__":
    main()
