"""The listening side of a live merge: floods, garbage, oversized frames and strangers harm neither run nor job."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from merge_wire import OTHER, STEPS, TOKEN, Node, Port
from merged_frames import write_run
from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge import receiver
from rn50_advisor.advisor.merge.curve_keys import curve_keys
from rn50_advisor.advisor.merge.inbox import INBOX_NAME
from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX
from rn50_advisor.advisor.merge.receiver import Receiver
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.recording import Recording
from waiting import wait_for


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path)
    yield made
    made.finish()


@contextlib.contextmanager
def pushing(port: Port, *, own: bytes = TOKEN, listeners: bytes = TOKEN) -> Iterator[zmq.Socket[bytes]]:
    """A peer that knows these tokens and sends what it likes."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as link:
        link.curve_publickey, link.curve_secretkey = curve_keys(own, "sender")
        link.curve_serverkey = curve_keys(listeners, "listener")[0]
        link.sndhwm, link.linger, link.immediate = 2, 5000, True
        link.connect("tcp://{}:{}".format(*port.address))
        yield link
        if (own, listeners) != (TOKEN, TOKEN):
            link.linger = 0


def send_run(port: Port, folder: Path) -> Recording:
    """Sends by hand all that one sound node would send."""
    _, own = two_nodes({rank: plan(60) for rank in range(2)})
    before = port.receiver.frames
    with pushing(port) as link:
        for kind, body in write_run(folder, own):
            link.send_multipart([b"a sound node", kind.encode(), body])
        wait_for(lambda: port.receiver.frames >= before + 2, "taking the frames")
    return own


def test_frames_are_kept_beside_the_run_for_the_user_alone(port: Port, tmp_path: Path) -> None:
    own = send_run(port, tmp_path / "run")
    (found,) = port.received()
    assert found.steps[1]["count"].sum() == own.steps[1].size
    assert not port.gaps
    assert (port.folder / INBOX_NAME).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("address", [("::1", 0), ("", 0)], ids=["IPv6", "every interface"])
def test_it_listens_on_the_given_address(address: tuple[str, int], tmp_path: Path) -> None:
    made = Port(tmp_path, address)
    node = Node((address[0] or "localhost", made.address[1]))
    wait_for(lambda: made.receiver.frames, "sending")
    assert node.finish() == []
    assert len(made.received()) == 1


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n" + bytes(100), os.urandom(4096), bytes(64), b"\xff" + bytes(7) + b"\x7f\3\0"],
    ids=["a browser", "noise", "zeros", "half a greeting"],
)  # fmt: skip
def test_a_stranger_is_cut_off_and_counted(sent: bytes, port: Port, tmp_path: Path) -> None:
    with port.dial() as link, contextlib.suppress(ConnectionError):
        link.sendall(sent)
        link.shutdown(socket.SHUT_WR)
        while link.recv(4096):
            pass
    wait_for(lambda: port.receiver.refused == 1, "counting")
    send_run(port, tmp_path / "run")
    assert len(port.received()) == 1
    assert [gap.scope for gap in port.gaps] == ["port"]


@pytest.mark.parametrize(("own", "listeners"), [(OTHER, OTHER), (OTHER, TOKEN), (TOKEN, OTHER)])
def test_a_peer_without_the_token_sends_nothing(own: bytes, listeners: bytes, port: Port) -> None:
    with pushing(port, own=own, listeners=listeners) as link:
        wait_for(lambda: port.receiver.refused, "refusing")
        assert not link.poll(0, zmq.POLLOUT)
    assert not port.received()


def test_a_peer_without_encryption_sends_nothing(port: Port) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as link:
        link.linger, link.immediate = 0, True
        link.connect("tcp://{}:{}".format(*port.address))
        wait_for(lambda: port.receiver.refused, "refusing")
        assert not link.poll(0, zmq.POLLOUT)


def test_many_silent_connections_keep_no_node_out(port: Port, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(port.dial())
        send_run(port, tmp_path / "run")
    assert len(port.received()) == 1


def test_a_flood_of_connections_is_dropped_and_does_not_disturb_a_connected_node(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "_HANDSHAKE_S", 60.0)  # so that the port stays closed until the test is over
    with pushing(port) as link, contextlib.ExitStack() as stack:
        link.send_multipart([b"x", b"steps", STEPS])
        wait_for(lambda: port.receiver.frames == 1, "taking a frame")
        wait_for(lambda: not port.receiver._accepting, "closing the port")
        for _ in range(200):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(port.address)
        link.send_multipart([b"x", b"steps", STEPS])
        wait_for(lambda: port.receiver.frames == 2, "taking another one")
        assert port.receiver._accepted == 1


@pytest.mark.parametrize(
    "parts",
    [
        [STEPS],
        [b"x", b"steps", b"no frame at all"],
        [b"x", b"steps", STEPS[:-1] + b"!"],
        [b"x" * 100, b"steps", STEPS],
        [b"x", b"orders", STEPS],
        [b"x", b"steps", STEPS, b"more"],
        [b""] * 1000,
    ],
    ids=["no name", "garbage", "changed", "a long name", "another kind", "too many parts", "endless parts"],
)
def test_messages_that_are_no_frames_are_left_out_and_counted(parts: list[bytes], port: Port, tmp_path: Path) -> None:
    with pushing(port) as link:
        link.send_multipart(parts)
        wait_for(lambda: port.receiver.refused == 1, "counting")
    send_run(port, tmp_path / "run")
    assert len(port.received()) == 1


def test_the_sender_of_an_oversized_frame_is_cut_off_before_it_is_read(port: Port, tmp_path: Path) -> None:
    with pushing(port) as link:
        link.send_multipart([b"x", b"steps", bytes(FRAME_BYTES_MAX + 100)])
        wait_for(lambda: port.receiver._disconnected, "cutting off")
        link.linger = 0
    assert not port.receiver.frames and not port.receiver._invalid
    send_run(port, tmp_path / "run")
    assert len(port.received()) == 1


def resident_kb() -> int:
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))


def test_a_node_that_floods_waits_in_its_own_queue_and_delays_no_other(port: Port) -> None:
    noise, over = os.urandom(FRAME_BYTES_MAX), threading.Event()
    with pushing(port) as flood, pushing(port) as sound:
        sound.send_multipart([b"x", b"steps", STEPS])
        wait_for(lambda: port.receiver.frames, "taking a frame")
        before_kb, sent = resident_kb(), 0
        while port.receiver.refused < 8:
            with contextlib.suppress(zmq.Again):
                flood.send_multipart([b"f", b"steps", noise], zmq.DONTWAIT)
                sent += 1
            over.wait(0.001)
        taken = port.receiver.frames
        sound.send_multipart([b"x", b"steps", STEPS])
        wait_for(lambda: port.receiver.frames > taken, "the other node's turn")
        assert sent < 100 and resident_kb() - before_kb < 64 << 10
        flood.linger = 0


def test_a_port_in_use_is_one_clear_line(port: Port, tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="cannot listen on"):
        Receiver(port.address, TOKEN, tmp_path, report=port.gaps.append)
