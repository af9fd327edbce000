"""A node of a live merge: it sends what it can to who knows the token, and nobody on the way reads, changes or repeats it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from merge_wire import LOCAL, OTHER, TOKEN, Node, Port
from rn50_advisor.advisor.merge import sender
from rn50_advisor.advisor.merge.curve_keys import curve_keys
from rn50_advisor.advisor.merge.node_link import read_token
from waiting import DEADLINE_S, wait_for


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path)
    yield made
    made.receiver.finish(DEADLINE_S)


def test_a_sender_brings_its_last_words_when_the_job_ends_between_two_frames(port: Port) -> None:
    node = Node(port.address, period_s=3600)
    node.outbox.put_meta({"ended_ns": 5, "exit_code": 3})
    assert node.finish() == []
    (found,) = port.close()
    assert found.meta.exit_code == 3


def test_a_sender_is_there_before_its_first_frame_is_due_so_that_a_short_job_is_waited_for(port: Port) -> None:
    node = Node(port.address, period_s=3600)
    wait_for(lambda: port.receiver.frames, "telling of itself")
    port.receiver.finish(0.0)  # the other node's job ends first
    assert node.finish() == []
    assert len(port.close()) == 1 and port.receiver.frames > 1


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(60)], ids=["silence", "a web server"]
)
def test_a_sender_is_not_taken_in_by_whoever_else_listens_there(answer: bytes) -> None:
    sent = b""
    with socket.create_server((LOCAL, 0)) as other:
        node = Node(other.getsockname()[:2])
        link, _ = other.accept()
    with link, contextlib.suppress(OSError):  # the sender may have left already, at the first wrong byte
        link.sendall(answer)
        link.shutdown(socket.SHUT_WR)
        while more := link.recv(4096):
            sent += more
    wait_for(lambda: node.gaps, "telling")
    assert node.finish() == ["job", "frames"]
    assert len(sent) <= 64  # of ZeroMQ's own greeting


def test_a_sender_with_another_token_says_so(port: Port) -> None:
    node = Node(port.address, lambda: OTHER)
    wait_for(lambda: node.gaps, "telling")
    assert node.finish() == ["job", "frames"]
    assert "has another token" in node.gaps[0].reason and not port.receiver.frames


def test_a_sender_whose_other_side_comes_late_sends_all_that_waited_and_again_to_one_that_is_started_anew(
    tmp_path: Path,
) -> None:
    with socket.create_server((LOCAL, 0)) as free:
        address = free.getsockname()[:2]
    node = Node(address)
    wait_for(lambda: node.gaps, "telling")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        late = Port(tmp_path / name, address)
        wait_for(lambda late=late: late.receiver.frames > 1, "sending")
        late.receiver._over.set()  # while its sender is there
        assert len(late.close()) == 1
    assert set(node.finish()) <= {"job", "frames"}
    assert len([gap for gap in node.gaps if gap.scope == "job"]) <= 3, "an outage is told once"


def test_who_is_not_there_yet_when_a_node_starts_is_not_missed(tmp_path: Path) -> None:
    with socket.create_server((LOCAL, 0)) as free:
        address = free.getsockname()[:2]
    asked: list[int] = []
    node = Node(address, lambda: asked.append(1) or TOKEN, period_s=3600)
    wait_for(lambda: asked, "the first attempt")
    late = Port(tmp_path, address)
    wait_for(lambda: late.receiver.frames, "another attempt")
    assert node.finish() == []
    late.close()


def test_a_sender_whose_token_comes_after_it_began_says_so_once_and_then_sends(
    port: Port, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_RETRY_S", 0.05)
    file = tmp_path / "token"
    node = Node(port.address, lambda: read_token(file, make=False))
    wait_for(lambda: node.gaps, "telling")
    file.touch(0o600)  # copied by somebody, and not yet whole
    file.write_bytes(TOKEN)
    wait_for(lambda: port.receiver.frames > 1, "sending after all")
    assert node.finish() == ["job"] and "token" in node.gaps[0].reason
    assert len(port.close()) == 1


def test_a_frame_that_is_too_large_is_a_gap_and_the_others_are_sent(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FRAME_BYTES_MAX", 150)  # below a state, above steps without any
    node = Node(port.address)
    wait_for(lambda: port.receiver.frames > 2, "sending")
    assert node.finish() == ["state"]
    assert not port.receiver.refused


def test_a_side_that_takes_nothing_costs_a_bounded_queue_and_what_was_lost_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "_KEPT_BYTES", 2000)
    monkeypatch.setattr(sender, "_LAST_WORDS_S", 0.2)
    with zmq.Context() as context, context.socket(zmq.PULL) as stuck:
        stuck.curve_server, stuck.rcvhwm = True, 1
        stuck.curve_publickey, stuck.curve_secretkey = curve_keys(TOKEN, "listener")
        monkeypatch.setitem(sender._OPTIONS, zmq.SNDBUF, 4096)
        stuck.rcvbuf = 4096
        node = Node((LOCAL, stuck.bind_to_random_port(f"tcp://{LOCAL}")), period_s=0.001)
        wait_for(lambda: node.sender._lost, "losing frames")
        assert sum(len(body) for _, body in list(node.sender._waiting)) <= 3000
        assert node.finish() == ["frames"]


class Relay:
    """Hands on what a sender sends, noted, changed or held back; one connection."""

    def __init__(self, port: Port) -> None:
        self.noted = b""
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
                            self.noted += data
                            if self.garbles:
                                self.garbles = False
                                data = data[:-1] + bytes([data[-1] ^ 1])
                        if not self.holds:
                            (far if link is near else near).sendall(data)


def test_nobody_on_the_way_reads_changes_or_repeats_what_is_sent(port: Port) -> None:
    relay = Relay(port)
    node = Node(relay.address)
    wait_for(lambda: port.receiver.frames > 3, "sending")
    assert b"steps" not in relay.noted and b"state" not in relay.noted
    noted = relay.noted
    relay.garbles = True
    wait_for(lambda: port.receiver._left, "cutting off")
    frames = port.receiver.frames
    wait_for(lambda: port.receiver.frames > frames, "sending anew")
    assert port.receiver._unfit == 0
    assert set(node.finish()) <= {"job", "frames"}
    proved = port.receiver._proved
    with port.dial() as again, contextlib.suppress(OSError):
        again.sendall(noted)
        again.shutdown(socket.SHUT_WR)
        while again.recv(4096):
            pass
    wait_for(lambda: port.receiver.refused, "refusing")
    assert port.receiver._proved == proved


def test_a_wire_that_went_dead_is_noticed_without_an_answer(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ((zmq.HEARTBEAT_IVL, 50), (zmq.HEARTBEAT_TIMEOUT, 200)):
        monkeypatch.setitem(sender._OPTIONS, name, value)
    relay = Relay(port)
    node = Node(relay.address)
    wait_for(lambda: port.receiver.frames, "sending")
    relay.holds = True
    wait_for(lambda: node.gaps, "telling")
    monkeypatch.setattr(sender, "_LAST_WORDS_S", 0.2)
    assert node.finish()[0] == "job"
