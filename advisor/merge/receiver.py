"""The merging side: listens where the user asked for it, takes frames from nodes that know the token, and keeps them in the inbox.

A port is open to anybody. Whoever does not prove the token within seconds is cut off; how many are greeted a second, how large a frame may
be and how much one node may send are bounded, so that a flood costs the node next to nothing and the run nothing at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.merge.inbox import Inbox
from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX, NotAFrame, unpacked
from rn50_advisor.advisor.merge.node_link import GREETING, HEADER, KINDS, NONCE_BYTES, PROOF_BYTES, Seal, proof, same
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap

_GREETINGS_PER_S = 20.0  # a thousand nodes are in within a minute; a flood is left in the kernel's queue
_GREETINGS_AT_ONCE = 200
_PROVES_WITHIN_S = 5.0
_SILENT_S = 120.0  # senders send every ten seconds
_BODY_WITHIN_S = 30.0
_BYTES_PER_S = 256 << 10  # of one node: a hundred times what 8 ranks take
_BYTES_AT_ONCE = 8 << 20
_COMMIT_S = 1.0
_WHO_BYTES_MAX = 64
_LAST_FRAMES_S = 2.0  # nodes of one job end together, but not in one moment
_UNFIT = (OSError, EOFError, NotAFrame, asyncio.IncompleteReadError, asyncio.TimeoutError)


class Receiver:
    """`start` and `finish` belong to the agent's thread. Raises AdvisorError where the port cannot be had."""

    def __init__(
        self, address: tuple[str, int], token: bytes, folder: Path, *, post: Callable[[ProbeGap], object]
    ) -> None:
        self._token = token
        self._folder = folder
        self._post = post
        self._listener = _listen(address)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # its way of telling is the job's stderr
        self._over = asyncio.Event()
        self._broken: sqlite3.Error | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._most = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self.frames = self.refused = 0
        self._thread = threading.Thread(target=self._run, name="rn50-merging", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, within_s: float) -> None:
        with contextlib.suppress(RuntimeError):  # it ended by itself
            self._loop.call_soon_threadsafe(self._over.set)
        if self._thread.ident is not None:
            self._thread.join(within_s)
        if self.refused:
            reason = (
                f"{self.refused} connections to the merging port were refused: without the token, or no frames of ours"
            )
            self._post(ProbeGap("node.merge", "port", reason))

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # noqa: BLE001 - the wall of this thread: the run goes on without the others
            reason = f"merging broke off: {type(error).__name__}: {error}"
            self._post(ProbeGap("node.merge", "job", reason, "merge the nodes' own run files afterwards"))
        finally:
            self._listener.close()
            self._loop.close()

    async def _serve(self) -> None:
        inbox = Inbox(self._folder)
        try:
            beside = [
                asyncio.ensure_future(work) for work in (self._accept(inbox), self._commit(inbox), self._over.wait())
            ]
            await asyncio.wait(beside, return_when=asyncio.FIRST_COMPLETED)
            if self._tasks and self._broken is None:
                await asyncio.wait(self._tasks, timeout=_LAST_FRAMES_S)
            ending = (*beside, *self._tasks)
            for task in ending:
                task.cancel()
            results = await asyncio.gather(*ending, return_exceptions=True)
            broken = self._broken or next((r for r in results if isinstance(r, Exception)), None)
            if broken is not None:
                raise broken
        finally:
            inbox.close()

    async def _commit(self, inbox: Inbox) -> None:
        while True:
            await asyncio.sleep(_COMMIT_S)
            inbox.commit()

    async def _accept(self, inbox: Inbox) -> None:
        allowance = _Allowance(self._loop.time, _GREETINGS_PER_S, _GREETINGS_AT_ONCE)
        while True:
            await allowance.wait_for(1)
            try:
                link, _ = await self._loop.sock_accept(self._listener)
            except OSError:  # no descriptor left, or the peer is gone already
                await asyncio.sleep(1.0)
                continue
            if len(self._tasks) >= self._most:
                self.refused += 1
                link.close()
                continue
            task = self._loop.create_task(self._attend(link, inbox))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attend(self, link: socket.socket, inbox: Inbox) -> None:
        """One connection to its end. What does not fit ends it; only a failing inbox ends more than that."""
        proved = False
        writer = None
        try:
            link.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=link, limit=64 << 10)
            seal = await asyncio.wait_for(self._prove(reader, writer), _PROVES_WITHIN_S)
            proved = True
            await self._take(reader, seal, inbox)
        except _UNFIT as error:
            # a sender that leaves between two frames has just ended
            self.refused += not proved or not isinstance(error, (asyncio.IncompleteReadError, OSError))
        except sqlite3.Error as error:
            self._broken = error
            self._over.set()
        finally:
            if writer is not None:
                writer.close()
            else:
                link.close()

    async def _prove(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seal:
        ours = secrets.token_bytes(NONCE_BYTES)
        writer.write(GREETING + ours)
        answer = await reader.readexactly(NONCE_BYTES + PROOF_BYTES)
        theirs = answer[:NONCE_BYTES]
        if not same(answer[NONCE_BYTES:], proof(self._token, b"sender", ours, theirs)):
            raise NotAFrame("the token is another one")
        writer.write(proof(self._token, b"merger", ours, theirs))
        await writer.drain()
        return Seal(self._token, ours, theirs)

    async def _take(self, reader: asyncio.StreamReader, seal: Seal, inbox: Inbox) -> None:
        node = None
        allowance = _Allowance(self._loop.time, _BYTES_PER_S, _BYTES_AT_ONCE)
        while True:
            size, code, mac = HEADER.unpack(await asyncio.wait_for(reader.readexactly(HEADER.size), _SILENT_S))
            kind = KINDS.get(code, "")
            if not kind or size > FRAME_BYTES_MAX:
                raise NotAFrame("no kind of ours, or too large")
            await allowance.wait_for(size)
            body = await asyncio.wait_for(reader.readexactly(size), _BODY_WITHIN_S)
            if not seal.fits(code, body, mac):
                raise NotAFrame("its seal is broken")
            if kind == "who":
                if not 0 < size <= _WHO_BYTES_MAX:
                    raise NotAFrame("no name")
                node = inbox.node_of(body.hex())
            elif node is None:
                raise NotAFrame("nobody said who sends it")
            else:
                unpacked(body)
                inbox.put(node, kind, body)
                self.frames += 1


class _Allowance:
    """So much a second, and so much at once after a rest."""

    def __init__(self, clock: Callable[[], float], per_s: float, at_once: float) -> None:
        self._clock, self._per_s, self._at_once = clock, per_s, at_once
        self._left, self._at_s = at_once, clock()

    async def wait_for(self, amount: float) -> None:
        now_s = self._clock()
        self._left = min(self._at_once, self._left + (now_s - self._at_s) * self._per_s) - amount
        self._at_s = now_s
        if self._left < 0:
            await asyncio.sleep(-self._left / self._per_s)


def _listen(address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise AdvisorError(
            f"cannot listen on {host or '*'}:{port}: {error.strerror or error}", "--merge-listen with another port"
        ) from error
    listener.setblocking(False)
    return listener
