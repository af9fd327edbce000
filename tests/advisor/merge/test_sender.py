"""The sending side of a live merge: it sends only to a holder of the token, also to a late one, and reports once what it cannot send."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from merge_wire import LOCAL, OTHER, TOKEN, Node, Port
from rn50_advisor.advisor.merge import run_tail, sender
from rn50_advisor.advisor.merge.curve_keys import curve_keys
from rn50_advisor.advisor.merge.live_merge import read_token
from rn50_advisor.advisor.merge.node_frames import packed
from rn50_advisor.probes.rank.layout import KIND_STEP, STEP_FIELDS
from waiting import wait_for


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path)
    yield made
    made.finish()


def test_the_last_frames_are_sent_when_the_job_ends_between_two_frames(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tail, "_ROWS_MAX", 2)
    node = Node(port.address, period_s=3600)
    node.writer.put_records(KIND_STEP, 0, [(0, (step, *[1] * (len(STEP_FIELDS) - 1))) for step in range(5)])
    node.writer.put_meta(ended_ns=5, exit_code=3)
    node.writer.commit()
    assert node.finish() == []
    (found,) = port.received()
    assert found.meta.exit_code == 3 and found.steps[0]["step"].tolist() == [0, 1, 2, 3, 4]


def test_a_sender_connects_before_its_first_frame_is_due_so_that_the_listener_waits_for_a_short_job(port: Port) -> None:
    node = Node(port.address, period_s=3600)
    wait_for(lambda: port.receiver.frames, "the first state")
    port.ending.set()  # the other node's job ends first
    assert node.finish() == []
    assert len(port.received()) == 1 and port.receiver.frames > 1


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(60)], ids=["silence", "a web server"]
)
def test_a_sender_sends_nothing_to_another_program_that_listens_there(answer: bytes) -> None:
    sent = b""
    with socket.create_server((LOCAL, 0)) as other:
        node = Node(other.getsockname()[:2])
        link, _ = other.accept()
    with link, contextlib.suppress(OSError):  # the sender may have left already, at the first wrong byte
        link.sendall(answer)
        link.shutdown(socket.SHUT_WR)
        while more := link.recv(4096):
            sent += more
    wait_for(lambda: node.gaps, "the report")
    assert node.finish() == ["job"]
    assert len(sent) <= 64  # of ZeroMQ's own greeting


def test_another_token_is_reported(port: Port) -> None:
    node = Node(port.address, lambda: OTHER)
    wait_for(lambda: node.gaps, "the report")
    assert node.finish() == ["job"]
    assert "has another token" in node.gaps[0].reason and not port.receiver.frames


def test_a_listener_that_comes_late_or_returns_gets_the_state_and_the_outage_is_reported_once(tmp_path: Path) -> None:
    with socket.create_server((LOCAL, 0)) as free:
        address = free.getsockname()[:2]
    node = Node(address)
    wait_for(lambda: node.gaps, "the report")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        late = Port(tmp_path / name, address)
        wait_for(lambda late=late: late.receiver.frames > 1, "sending")
        assert len(late.received()) == 1
        wait_for(lambda: not node.sender._connected, "the sender's notice that the listener has left")
    assert set(node.finish()) == {"job"} and len(node.gaps) <= 3, "once before, between and after the two"


def test_a_listener_that_starts_within_the_first_period_is_not_missed(tmp_path: Path) -> None:
    with socket.create_server((LOCAL, 0)) as free:
        address = free.getsockname()[:2]
    asked: list[int] = []
    node = Node(address, lambda: asked.append(1) or TOKEN, period_s=3600)
    wait_for(lambda: asked, "the first attempt")
    late = Port(tmp_path, address)
    wait_for(lambda: late.receiver.frames, "another attempt")
    assert node.finish() == []
    late.finish()


def test_a_token_that_comes_later_is_reported_once_and_then_used(port: Port, tmp_path: Path) -> None:
    file = tmp_path / "token"
    node = Node(port.address, lambda: read_token(file, make=False))
    wait_for(lambda: node.gaps, "the report")
    file.touch(0o600)  # copied by somebody, and not yet whole
    file.write_bytes(TOKEN)
    wait_for(lambda: port.receiver.frames > 1, "sending after all")
    assert node.finish() == ["job"] and "token" in node.gaps[0].reason
    assert len(port.received()) == 1


def test_a_frame_that_is_too_large_is_a_gap_and_the_others_are_sent(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FRAME_BYTES_MAX", 150)  # below a state, above steps without any
    node = Node(port.address)
    wait_for(lambda: port.receiver.frames > 2, "sending")
    assert node.finish() == ["state"]
    assert not port.receiver.refused


def test_a_listener_that_accepts_nothing_fills_no_memory_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_LAST_FRAMES_S", 0.2)
    with zmq.Context() as context, context.socket(zmq.PULL) as stuck:
        stuck.curve_server, stuck.rcvhwm = True, 1
        stuck.curve_publickey, stuck.curve_secretkey = curve_keys(TOKEN, "listener")
        monkeypatch.setitem(sender._OPTIONS, zmq.SNDBUF, 4096)
        stuck.rcvbuf = 4096
        made: list[bytes] = []
        looks: list[None] = []
        monkeypatch.setattr(sender.RunTail, "has_news", lambda tail: looks.append(None))
        monkeypatch.setattr(sender, "packed", lambda frame: made.append(packed(frame)) or os.urandom(100_000))
        node = Node((LOCAL, stuck.bind_to_random_port(f"tcp://{LOCAL}")), period_s=0.001)
        wait_for(lambda: made, "the first frame")
        looks.clear()
        wait_for(lambda: len(looks) > 300, "many periods")
        assert len(made) < 10, "nothing is made that cannot be sent"
        assert node.finish()[-1] == "frames"


class Relay:
    """Passes on what a sender sends, recorded, changed or held back; one connection at a time."""

    def __init__(self, port: Port) -> None:
        self.recorded = b""
        self.garbles = self.holds = False
        self._listener = socket.create_server((LOCAL, 0))
        self.address = self._listener.getsockname()[:2]
        self._port = port
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            near, _ = self._listener.accept()
            with near, contextlib.suppress(OSError), self._port.dial() as far, selectors.DefaultSelector() as waiting:
                for link in (near, far):
                    waiting.register(link, selectors.EVENT_READ)
                while True:
                    for key, _ in waiting.select():
                        link = key.fileobj
                        data = link.recv(1 << 16)
                        if not data:
                            raise ConnectionResetError
                        if link is near:
                            self.recorded += data
                            if self.garbles:
                                self.garbles = False
                                data = data[:-1] + bytes([data[-1] ^ 1])
                        if not self.holds:
                            (far if link is near else near).sendall(data)


def test_nobody_on_the_wire_can_read_change_or_repeat_frames(port: Port) -> None:
    relay = Relay(port)
    node = Node(relay.address)
    wait_for(lambda: port.receiver.frames > 3, "sending")
    assert b"steps" not in relay.recorded and b"state" not in relay.recorded
    recorded = relay.recorded
    relay.garbles = True
    wait_for(lambda: port.receiver._disconnected, "cutting off")
    frames = port.receiver.frames
    wait_for(lambda: port.receiver.frames > frames, "sending anew")
    assert port.receiver._invalid == 0
    assert set(node.finish()) <= {"job"}
    proved = port.receiver._authenticated
    with port.dial() as again, contextlib.suppress(OSError):
        again.sendall(recorded)
        again.shutdown(socket.SHUT_WR)
        while again.recv(4096):
            pass
    wait_for(lambda: port.receiver.refused, "refusing")
    assert port.receiver._authenticated == proved


def test_a_wire_that_goes_dead_is_noticed(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ((zmq.HEARTBEAT_IVL, 50), (zmq.HEARTBEAT_TIMEOUT, 200)):
        monkeypatch.setitem(sender._OPTIONS, name, value)
    relay = Relay(port)
    node = Node(relay.address)
    wait_for(lambda: port.receiver.frames, "sending")
    relay.holds = True
    wait_for(lambda: node.gaps, "the report")
    monkeypatch.setattr(sender, "_LAST_FRAMES_S", 0.2)
    assert node.finish() == ["job"]
