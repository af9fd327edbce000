"""Reports deaths of processes that are not our children, immediately and with exit code or signal."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.probes.host.procfs import parse_stat, read_text

FALLBACK_POLL_S = 0.02  # well below torchrun's 100 ms, after which it reaps its ranks
# include/uapi/linux/pidfd.h, Linux 6.15: the exit code stays readable through a pidfd after the process was reaped.
_PIDFD_INFO = struct.Struct("<QQ3I8Ii")
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """An exit code or a signal; the other is None."""

    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class ProcessDeath:
    """`exit_code` and `signal` are both None if the process was reaped before we read its status."""

    pid: int
    t_ns: int
    exit_code: int | None
    signal: int | None


def decode_wait_status(status: int) -> ExitStatus:
    """Decodes a status of waitpid or of field 52 of /proc/<pid>/stat, without the core-dump bit."""
    signal = status & 0x7F
    return ExitStatus(None, signal) if signal else ExitStatus((status >> 8) & 0xFF, None)


def exit_status(pid: int, root: Path = Path("/")) -> ExitStatus | None:
    """Exit status of a zombie. None if the process lives, was reaped, or the kernel hides the status (it would show 0)."""
    text = read_text(root / f"proc/{pid}/stat")
    try:
        stat = parse_stat((text or "").encode())
    except (ValueError, IndexError):
        return None
    if stat.state not in (b"Z", b"X") or not _may_see_exit(pid, root):
        return None
    return decode_wait_status(stat.exit_code)


def _may_see_exit(pid: int, root: Path) -> bool:
    """True if the kernel shows us the exit code. It shows it to processes with ptrace access; others see 0."""
    if os.geteuid() == 0:
        return True
    for line in (read_text(root / f"proc/{pid}/status") or "").splitlines():
        if line.startswith("Uid:"):
            return all(int(uid) == os.getuid() for uid in line.split()[1:4])
    return False


def _status_by_pidfd(fd: int) -> ExitStatus | None:
    buffer = bytearray(_PIDFD_INFO.size)
    struct.pack_into("<Q", buffer, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(fd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None  # a kernel before 6.13, or a process not reaped yet
    fields = _PIDFD_INFO.unpack(buffer)
    return decode_wait_status(fields[-1]) if fields[0] & _PIDFD_INFO_EXIT else None


def _is_readable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


class DeathWatch:
    """Reports watched processes when they become zombies. `watch` and `forget` may be called while another thread is in `poll`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._pid_of: dict[int, int] = {}  # pidfd -> pid
        self._polled: dict[int, int] = {}  # pid -> start ticks, for processes without a pidfd
        self._gone: list[ProcessDeath] = []

    def watch(self, pid: int) -> None:
        """Watches a pid; twice is harmless. If the process is already gone, the next poll reports it without exit code."""
        if pid in self._polled or pid in self._pid_of.values():
            return
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone.append(ProcessDeath(pid, time.monotonic_ns(), None, None))
        except (OSError, AttributeError):
            # Linux before 5.3, a sandbox that refuses it, no descriptor left, or a Python built without it
            self._watch_by_polling(pid)
        else:
            self._pid_of[fd] = pid
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def forget(self, pid: int) -> None:
        self._polled.pop(pid, None)
        for fd in [fd for fd, watched in list(self._pid_of.items()) if watched == pid]:
            self._release(fd)

    def poll(self, timeout_s: float) -> tuple[ProcessDeath, ...]:
        """Waits up to `timeout_s` until a watched process ends. Returns every death once."""
        deadline = time.monotonic() + timeout_s
        while True:
            deaths, self._gone = self._gone, []
            deaths += self._check_polled()
            left_s = 0.0 if deaths else max(0.0, deadline - time.monotonic())
            wait_s = min(left_s, FALLBACK_POLL_S) if self._polled else left_s
            deaths += [death for fd, _ in self._epoll.poll(wait_s) if (death := self._death_by_pidfd(fd))]
            if deaths or time.monotonic() >= deadline:
                return tuple(deaths)

    def close(self) -> None:
        for fd in list(self._pid_of):
            self._release(fd)
        self._epoll.close()

    def _death_by_pidfd(self, fd: int) -> ProcessDeath | None:
        t_ns = time.monotonic_ns()
        pid = self._pid_of.get(fd)
        if pid is None or not _is_readable(fd):
            return None  # another thread has called `forget` meanwhile, and the descriptor may be reused
        status = exit_status(pid) or _status_by_pidfd(fd)
        self._release(fd)
        return ProcessDeath(pid, t_ns, status.code if status else None, status.signal if status else None)

    def _release(self, fd: int) -> None:
        if self._pid_of.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            os.close(fd)

    def _watch_by_polling(self, pid: int) -> None:
        try:
            self._polled[pid] = parse_stat(Path(f"/proc/{pid}/stat").read_bytes()).start_ticks
        except (OSError, ValueError, IndexError):
            self._gone.append(ProcessDeath(pid, time.monotonic_ns(), None, None))

    def _check_polled(self) -> list[ProcessDeath]:
        deaths = []
        for pid, start_ticks in list(self._polled.items()):
            try:
                stat = parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
            except OSError as e:
                if e.errno not in (errno.ENOENT, errno.ESRCH):
                    continue
                stat = None
            if stat is not None and stat.start_ticks == start_ticks and stat.state not in (b"Z", b"X"):
                continue
            status = exit_status(pid) if stat is not None and stat.start_ticks == start_ticks else None
            self._polled.pop(pid, None)
            deaths.append(
                ProcessDeath(
                    pid, time.monotonic_ns(), status.code if status else None, status.signal if status else None
                )
            )
        return deaths
