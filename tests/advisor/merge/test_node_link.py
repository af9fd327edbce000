"""The port of a live merge: nothing listens unasked, and who floods, cuts or garbles it harms neither run nor job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from merged_frames import frames_of
from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, sent_recordings
from rn50_advisor.advisor.merge.live_merge import Part
from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX, VERSION, packed
from rn50_advisor.advisor.merge.node_link import (
    GREETING,
    HEADER,
    NONCE_BYTES,
    PROOF_BYTES,
    Seal,
    parse_address,
    proof,
    read_token,
)
from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.merge.receiver import Receiver, _Allowance
from rn50_advisor.advisor.merge.sender import Sender
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_writer import RunWriter

TOKEN = b"0123456789abcdef0123456789abcdef"
DEADLINE_S = 30.0  # far more than it takes, so that only a hang fails


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {DEADLINE_S} s"
        time.sleep(0.01)
    return answer


class Port:
    """A receiver that listens, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gaps: list[ProbeGap] = []
        self.receiver = Receiver(("127.0.0.1", 0), TOKEN, folder, post=self.gaps.append)
        self.receiver.start()

    def dial(self) -> socket.socket:
        return socket.create_connection(self.receiver.address, DEADLINE_S)

    def close(self) -> list[Recording]:
        self.receiver.finish(DEADLINE_S)
        return sent_recordings(self.folder / INBOX_NAME)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path)
    yield made
    made.receiver.finish(DEADLINE_S)


def exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := link.recv(size - len(data))):
        data += more
    return data


def known(link: socket.socket, token: bytes = TOKEN) -> Seal:
    """Prove the token as a sender does."""
    theirs = exactly(link, len(GREETING) + NONCE_BYTES)[len(GREETING) :]
    ours = os.urandom(NONCE_BYTES)
    link.sendall(ours + proof(token, b"sender", theirs, ours))
    assert exactly(link, PROOF_BYTES) == proof(token, b"merger", theirs, ours)
    return Seal(token, theirs, ours)


def cut_off(link: socket.socket) -> bool:
    """Whether the other side hangs up."""
    try:
        while link.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def send_run(port: Port) -> Recording:
    """Everything that one sound node would send, by hand."""
    _, own = two_nodes({rank: plan(60) for rank in range(2)})
    with port.dial() as link:
        seal = known(link)
        link.sendall(seal.sealed("who", b"a sound node"))
        for kind, body in frames_of(own):
            link.sendall(seal.sealed(kind, body))
        wait_for(lambda: port.receiver.frames >= 2, "taking the frames")
    return own


def test_what_a_node_sends_is_read_beside_the_run(port: Port) -> None:
    own = send_run(port)
    (found,) = port.close()
    assert found.steps[1]["count"].sum() == own.steps[1].size
    assert not port.gaps


def test_the_inbox_is_for_the_user_alone(port: Port) -> None:
    send_run(port)
    port.close()
    assert (port.folder / INBOX_NAME).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n" + bytes(100),
        os.urandom(4096),
        bytes(NONCE_BYTES + PROOF_BYTES),
        bytes(NONCE_BYTES) + proof(b"another token of somebody", b"sender", bytes(32), bytes(32)),
    ],
    ids=["a browser", "noise", "zeros", "another token"],
)
def test_who_does_not_know_the_token_is_cut_off_and_counted(port: Port, said: bytes) -> None:
    with port.dial() as link:
        link.sendall(said)
        assert cut_off(link)
    wait_for(lambda: port.receiver.refused == 1, "counting")
    send_run(port)
    assert len(port.close()) == 1
    assert [gap.scope for gap in port.gaps] == ["port"]


def test_a_crowd_that_connects_and_says_nothing_does_not_keep_a_node_out(port: Port) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(port.dial())
        send_run(port)
    assert len(port.close()) == 1


def test_an_answer_overheard_is_worth_nothing_the_next_time(port: Port) -> None:
    with port.dial() as link:
        theirs = exactly(link, len(GREETING) + NONCE_BYTES)[len(GREETING) :]
        answer = bytes(32) + proof(TOKEN, b"sender", theirs, bytes(32))
        link.sendall(answer)
        assert len(exactly(link, PROOF_BYTES)) == PROOF_BYTES
    with port.dial() as link:
        exactly(link, len(GREETING) + NONCE_BYTES)
        link.sendall(answer)
        assert cut_off(link)


STEPS = packed({"v": VERSION, "t": 1, "ranks": {}, "samples": {}, "positions": {}})


@pytest.mark.parametrize(
    "frames",
    [
        lambda seal: seal.sealed("steps", STEPS),
        lambda seal: seal.sealed("who", b"x") + seal.sealed("steps", b"no frame at all"),
        lambda seal: seal.sealed("who", b"x") + seal.sealed("steps", STEPS)[:-1] + b"!",
        lambda seal: seal.sealed("who", b"x") + 2 * seal.sealed("steps", STEPS),
        lambda seal: seal.sealed("who", b"x" * 100),
        lambda seal: HEADER.pack(FRAME_BYTES_MAX + 1, 2, bytes(16)),
        lambda seal: HEADER.pack(10, 9, bytes(16)) + bytes(10),
        lambda seal: struct.pack("!I", 0xFFFFFFFF) + bytes(4096),
    ],
    ids=["nobody said who", "garbage", "changed", "repeated", "a long name", "too large", "no kind", "noise"],
)
def test_a_node_that_sends_what_does_not_fit_is_cut_off_and_the_others_are_not(
    port: Port, frames: Callable[[Seal], bytes]
) -> None:
    with port.dial() as link:
        link.sendall(frames(known(link)))
        assert cut_off(link)
    wait_for(lambda: port.receiver.refused == 1, "counting")
    port.receiver.frames = 0
    send_run(port)
    assert len(port.close()) == 1


def test_more_than_a_node_may_send_is_slowed_down_not_kept() -> None:
    """What the allowance makes wait, by a clock of its own."""
    now, slept = [0.0], []

    async def spend() -> None:
        allowance = _Allowance(lambda: now[0], per_s=100.0, at_once=1000.0)
        for _ in range(12):
            await allowance.wait_for(100)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        asyncio.run(spend())
    assert slept == pytest.approx([1.0, 1.0])


def test_a_disk_that_fails_ends_the_merge_and_is_told(tmp_path: Path) -> None:
    (tmp_path / INBOX_NAME).write_bytes(b"no database" * 400)
    broken = Port(tmp_path)
    wait_for(lambda: broken.gaps, "telling")
    broken.receiver.finish(DEADLINE_S)
    assert "merging broke off" in broken.gaps[0].reason


def test_a_port_that_is_taken_is_one_clear_line(port: Port, tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="cannot listen on"):
        Receiver(port.receiver.address, TOKEN, tmp_path, post=port.gaps.append)


def filled() -> Outbox:
    outbox = Outbox()
    _, own = two_nodes({rank: plan(3) for rank in range(2)})
    outbox.put_meta({f: getattr(own.meta, f) for f in ("name", "argv", "cwd", "host", "started_unix_s", "started_ns")})
    outbox.put_process(own.processes[0])
    return outbox


def test_a_sender_brings_its_last_words_when_the_job_ends_between_two_frames(port: Port) -> None:
    outbox, gaps = filled(), list[ProbeGap]()
    sender = Sender(outbox, port.receiver.address, lambda: TOKEN, post=gaps.append, period_s=3600)
    sender.start()
    outbox.put_meta({"ended_ns": 5, "exit_code": 3})
    sender.finish(DEADLINE_S)
    (found,) = port.close()
    assert (found.meta.exit_code, gaps) == (3, [])


def test_a_sender_is_there_before_its_first_frame_is_due_so_that_a_short_job_is_waited_for(port: Port) -> None:
    gaps: list[ProbeGap] = []
    sender = Sender(filled(), port.receiver.address, lambda: TOKEN, post=gaps.append, period_s=3600)
    sender.start()
    wait_for(lambda: port.receiver.frames, "telling of itself")
    port.receiver.finish(0.0)  # the other node's job ends first
    sender.finish(DEADLINE_S)
    assert len(port.close()) == 1 and port.receiver.frames > 1 and not gaps


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(60), GREETING + bytes(NONCE_BYTES)],
    ids=["silence", "a web server", "another token"],
)
def test_a_sender_is_not_taken_in_by_whoever_else_listens_there(answer: bytes) -> None:
    gaps: list[ProbeGap] = []
    sent = b""
    with socket.create_server(("127.0.0.1", 0)) as other:
        sender = Sender(filled(), other.getsockname()[:2], lambda: TOKEN, post=gaps.append, period_s=0.01)
        sender.start()
        link, _ = other.accept()
    with link:
        with contextlib.suppress(OSError):  # the sender may have left already, at the first wrong byte
            link.sendall(answer)
            link.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            sent = exactly(link, 1 << 20)
    wait_for(lambda: gaps, "telling")
    sender.finish(DEADLINE_S)
    assert len(sent) in (0, NONCE_BYTES + PROOF_BYTES)  # no frame
    assert len(gaps) == 1


def test_a_sender_whose_other_side_comes_late_sends_all_that_waited(tmp_path: Path) -> None:
    gaps: list[ProbeGap] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()[:2]
    sender = Sender(filled(), address, lambda: TOKEN, post=gaps.append, period_s=0.01)
    sender.start()
    wait_for(lambda: gaps, "telling")
    late = Receiver(address, TOKEN, tmp_path, post=gaps.append)
    late.start()
    wait_for(lambda: late.frames > 1, "sending again")
    sender.finish(DEADLINE_S)
    late.finish(DEADLINE_S)
    assert len(gaps) == 1, "an outage is told once"
    assert len(sent_recordings(tmp_path / INBOX_NAME)) == 1


def test_who_is_not_there_yet_when_a_node_starts_is_not_missed(tmp_path: Path) -> None:
    gaps: list[ProbeGap] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()[:2]
    asked = []
    sender = Sender(filled(), address, lambda: asked.append(1) or TOKEN, post=gaps.append, period_s=3600)
    sender.start()
    wait_for(lambda: asked, "the first attempt")
    late = Receiver(address, TOKEN, tmp_path, post=gaps.append)
    late.start()
    wait_for(lambda: late.frames, "another attempt")
    sender.finish(DEADLINE_S)
    late.finish(DEADLINE_S)
    assert len(asked) > 1 and not gaps


def test_a_sender_whose_token_comes_after_it_began_says_so_once_and_then_sends(port: Port, tmp_path: Path) -> None:
    gaps: list[ProbeGap] = []
    file = tmp_path / "token"
    sender = Sender(
        filled(), port.receiver.address, lambda: read_token(file, make=False), post=gaps.append, period_s=0.01
    )
    sender.start()
    wait_for(lambda: gaps, "telling")
    file.touch(0o600)  # copied by somebody, and not yet whole
    file.write_bytes(TOKEN)
    wait_for(lambda: port.receiver.frames > 1, "sending after all")
    sender.finish(DEADLINE_S)
    assert len(port.close()) == 1
    assert len(gaps) == 1 and "token" in gaps[0].reason


def test_a_frame_that_is_too_large_is_a_gap_and_the_others_are_sent(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps: list[ProbeGap] = []
    monkeypatch.setattr(
        "rn50_advisor.advisor.merge.sender.FRAME_BYTES_MAX", 150
    )  # below a state, above steps without any
    sender = Sender(filled(), port.receiver.address, lambda: TOKEN, post=gaps.append, period_s=0.01)
    sender.start()
    wait_for(lambda: port.receiver.frames > 2, "sending")
    sender.finish(DEADLINE_S)
    assert [(gap.metric, gap.scope) for gap in gaps] == [("node.merge", "state")]
    assert not port.receiver.refused


def test_nothing_listens_and_nothing_is_sent_unless_asked(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={"name": "x"})
    gaps: list[ProbeGap] = []
    part = Part(listen="", to="", token_file="", period_s=10.0)
    part.start(writer, {}, gaps.append)
    part.finish()
    writer.close()
    assert not gaps and not (tmp_path / "run" / INBOX_NAME).exists()


def test_a_merge_that_cannot_be_had_is_a_gap_and_no_failure(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={"name": "x"})
    gaps: list[ProbeGap] = []
    part = Part(listen="203.0.113.1:1", to="", token_file=str(tmp_path / "token"), period_s=10.0)
    part.start(writer, {}, gaps.append)
    part.finish()
    writer.close()
    assert [gap.metric for gap in gaps] == ["node.merge"]


def test_the_token_is_made_once_and_for_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(AdvisorError, match="cannot be read"):
        read_token(file, make=False)
    made = read_token(file, make=True)
    assert len(made) == 64 and file.stat().st_mode & 0o077 == 0
    assert read_token(file, make=True) == read_token(file, make=False) == made
    file.chmod(0o644)
    with pytest.raises(UsageError, match="read by others"):
        read_token(file, make=False)
    file.chmod(0o600)
    file.write_text("short\n")
    with pytest.raises(UsageError, match="shorter"):
        read_token(file, make=False)


def test_a_token_is_never_seen_half_made_and_of_two_that_make_one_the_first_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "token", Path.hardlink_to

    def looked_at(name: Path, new: Path) -> None:
        assert not file.exists() and len(new.read_text().strip()) == 64
        link(name, new)

    monkeypatch.setattr(Path, "hardlink_to", looked_at)
    made = read_token(file, make=True)

    def too_late(name: Path, new: Path) -> None:
        file.write_bytes(made)
        file.chmod(0o600)
        link(name, new)

    file.unlink()
    monkeypatch.setattr(Path, "hardlink_to", too_late)
    assert read_token(file, make=True) == made
    assert list(tmp_path.iterdir()) == [file]

    def no_links(name: Path, new: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    file.unlink()
    monkeypatch.setattr(Path, "hardlink_to", no_links)
    assert len(read_token(file, make=True)) == 64 and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("text", "address"),
    [("node0:29600", ("node0", 29600)), ("[::1]:7", ("::1", 7)), (":0", ("", 0))],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "node0", "node0:", "node0:http", "node0:70000", "node0:²"])
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)
