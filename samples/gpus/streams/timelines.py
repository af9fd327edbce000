"""The timelines of a job: a host thread for each rank, streams that work in order, and collectives in which ranks meet.

Each host is a thread of its own, but only one of them runs at a time: always the one whose clock is behind all others. So whatever a host
asks about the present ("has this event passed?") depends on nothing that another host has yet to do. All times are nanoseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

QUEUE_DEPTH = 1024  # kernels that a host may launch ahead of its GPU; the next launch then waits
_NEVER = float("inf")


class Stopped(BaseException):
    """Ends a host thread after another one has failed."""


class Work:
    """Something queued on a stream. It starts after all of `after` and ends at `end_ns`, which is unknown while one of them is.

    A burst of kernels, launched one by one: each starts when it was launched and the one before has ended.
    """

    __slots__ = ("_burst", "_missing", "_ready_ns", "end_ns", "followers", "launched_ns", "meeting", "start_ns")

    def __init__(
        self,
        launched_ns: int,
        after: Iterator[Work] | tuple[Work, ...],
        *,
        kernels: int = 0,
        each_ns: float = 0.0,
        launch_ns: float = 0.0,
        meeting: Meeting | None = None,
    ) -> None:
        self.launched_ns = launched_ns
        self.start_ns = self.end_ns = None
        self.followers: list[Work] = []
        self.meeting = meeting
        self._burst = kernels, each_ns, launch_ns
        self._ready_ns = launched_ns
        self._missing = 0
        for other in after:
            if other.end_ns is None:
                other.followers.append(self)
                self._missing += 1
            else:
                self._ready_ns = max(self._ready_ns, other.end_ns)
        if not self._missing:
            _settle(self)

    start_ns: int | None
    end_ns: int | None

    def ended(self, other_end_ns: int) -> bool:
        """Notes the end of one that this waits for. True if it was the last."""
        self._ready_ns = max(self._ready_ns, other_end_ns)
        self._missing -= 1
        return not self._missing

    def play(self) -> list[Work]:
        """Returns the work that ends now that all before this has ended: this, or the members of a complete meeting."""
        kernels, each_ns, launch_ns = self._burst
        first_ns = self.launched_ns + launch_ns
        self.start_ns = round(max(self._ready_ns, first_ns))
        if self.meeting is not None:
            return self.meeting.join(self)
        if kernels:
            last_ns = self.launched_ns + kernels * launch_ns
            self.end_ns = round(max(self.start_ns + kernels * each_ns, last_ns + each_ns))
        else:
            self.end_ns = self.start_ns
        return [self]

    @property
    def busy_ns(self) -> float:
        """Time in which a kernel of it runs; in a collective, which is one kernel, also while it waits for others."""
        kernels, each_ns, _ = self._burst
        if self.meeting is not None and self.start_ns is not None and self.end_ns is not None:
            return self.end_ns - self.start_ns
        return kernels * each_ns

    @property
    def kernels(self) -> int:
        return self._burst[0]


def _settle(work: Work) -> None:
    """Plays this and all that waited for it. Not recursive, since thousands may wait in a row."""
    ready = deque([work])
    while ready:
        for done in ready.popleft().play():
            followers, done.followers = done.followers, []
            ready += (each for each in followers if each.ended(done.end_ns or 0))


class Meeting:
    """A collective: one kernel on each of `size` ranks, which all end together, `wire_ns` after the last one has begun."""

    def __init__(self, size: int, wire_ns: float) -> None:
        self._size = size
        self._wire_ns = wire_ns
        self.members: list[Work] = []

    def join(self, member: Work) -> list[Work]:
        self.members.append(member)
        if len(self.members) < self._size:
            return []
        end_ns = round(max(each.start_ns or 0 for each in self.members) + self._wire_ns)
        for each in self.members:
            each.end_ns = end_ns
        return self.members


class Device:
    """A GPU: streams, each of which works in the order of its queue. `busy`: all its kernels, as (begin, end, busy time, number)."""

    def __init__(self) -> None:
        self._tails: dict[str, Work] = {}
        self._log: deque[Work] = deque()
        self.unfinished: deque[Work] = deque()
        self.waiting = 0  # kernels of `unfinished`, which fill the queue

    def queue(self, stream: str, work: Callable[[tuple[Work, ...]], Work], *after: Work) -> Work:
        tail = self._tails.get(stream)
        made = work((*after, tail) if tail is not None else after)
        self._tails[stream] = made
        if made.kernels or made.meeting is not None:
            self._log.append(made)
            self.unfinished.append(made)
            self.waiting += max(1, made.kernels)
        return made

    def finish(self) -> Work:
        """Takes the oldest work out of the queue."""
        work = self.unfinished.popleft()
        self.waiting -= max(1, work.kernels)
        return work

    def tail(self, stream: str) -> Work | None:
        return self._tails.get(stream)

    def busy(self) -> list[tuple[int, int, float, int]]:
        return [
            (work.start_ns, work.end_ns, work.busy_ns, max(1, work.kernels))
            for work in self._log
            if work.start_ns is not None and work.end_ns is not None
        ]


class Host:
    """The training thread of one rank: its clock, the CPU time it has used, and its GPU."""

    def __init__(self, world: World, rank: int, began_ns: int) -> None:
        self.rank = rank
        self.now_ns, self.cpu_ns = began_ns, 0
        self.device = Device()
        self.awaited: Work | None = None
        self.goes_on = threading.Semaphore(0)
        self.done = False
        self._world = world
        self._fraction = 0.0

    @property
    def wakes_ns(self) -> float:
        """When this host can go on; never, as far as is known, while the end of what it waits for is open."""
        if self.awaited is None:
            return self.now_ns
        return _NEVER if self.awaited.end_ns is None else max(self.now_ns, self.awaited.end_ns)

    def work(self, ns: float) -> None:
        """Computes for this long."""
        whole = ns + self._fraction
        self.now_ns += int(whole)
        self.cpu_ns += int(whole)
        self._fraction = whole - int(whole)

    def sleep_until(self, t_ns: float) -> None:
        """Waits without using the CPU."""
        self.now_ns = max(self.now_ns, round(t_ns))

    def launch(self, kernels: int, each_ns: float, launch_ns: float, *, stream: str = "compute") -> Work:
        """Queues a burst of kernels, each of which takes the host `launch_ns`; waits while the queue is full."""
        self._make_room(kernels)
        begun_ns = self.now_ns
        work = self.device.queue(
            stream, lambda after: Work(begun_ns, after, kernels=kernels, each_ns=each_ns, launch_ns=launch_ns)
        )
        self.work(kernels * launch_ns)
        return work

    def replay(self, kernels: int, each_ns: float, launch_ns: float) -> Work:
        """Queues a CUDA graph: all its kernels by one launch."""
        self._make_room(1)
        self.work(launch_ns)
        begun_ns = self.now_ns
        return self.device.queue("compute", lambda after: Work(begun_ns, after, kernels=kernels, each_ns=each_ns))

    def mark(self, *, stream: str = "compute", after: tuple[Work, ...] = ()) -> Work:
        """Queues an event; with `after` the stream first waits for other streams' events."""
        now_ns = self.now_ns
        return self.device.queue(stream, lambda before: Work(now_ns, before), *after)

    def meet(self, key: object, size: int, wire_ns: float, launch_ns: float, *after: Work, stream: str) -> Work:
        """Queues this rank's part of a collective, which all ranks call by the same key."""
        meeting = self._world.meeting(key, size, wire_ns)
        self._make_room(1)
        self.work(launch_ns)
        now_ns = self.now_ns
        return self.device.queue(stream, lambda before: Work(now_ns, before, meeting=meeting), *after)

    def _make_room(self, kernels: int) -> None:
        device = self.device
        while device.unfinished and device.waiting + kernels > QUEUE_DEPTH:
            self.wait(device.finish())

    def wait(self, work: Work) -> None:
        """Blocks until it has ended. As CUDA does by default, the thread spins."""
        if work.end_ns is None:
            self.awaited = work
            self._world.take_turns(self)
            self.awaited = None
        end_ns = work.end_ns or 0
        if end_ns > self.now_ns:
            self.cpu_ns += end_ns - self.now_ns
            self.now_ns = end_ns

    def has_passed(self, work: Work) -> bool:
        """True if it has ended by now."""
        self._world.take_turns(self)
        return work.end_ns is not None and work.end_ns <= self.now_ns


class World:
    """All hosts of a job, and the agent that watches them. Runs them one at a time in order of their clocks."""

    def __init__(self, ranks: int, began_ns: int, watch: Callable[[int], None], *, every_ns: int) -> None:
        """`watch`: called with the time, every so often, when no host is behind it."""
        self.hosts = [Host(self, rank, began_ns) for rank in range(ranks)]
        self.running: Host | None = None  # whose clock is read
        self._watch, self._every_ns = watch, every_ns
        self._watched_ns = began_ns + every_ns
        self._meetings: dict[object, tuple[Meeting, int]] = {}
        self._failure: BaseException | None = None
        self._ended = threading.Semaphore(0)

    def now_ns(self) -> int:
        """The clock of the host that runs."""
        assert self.running is not None
        return self.running.now_ns

    def meeting(self, key: object, size: int, wire_ns: float) -> Meeting:
        made, asked = self._meetings.pop(key, (None, 0))
        made = made or Meeting(size, wire_ns)
        if asked + 1 < size:
            self._meetings[key] = made, asked + 1
        return made

    def run(self, body: Callable[[Host], None]) -> None:
        """Runs `body` in the thread of each host until all have ended. Raises what one of them raised."""
        threads = [threading.Thread(target=self._body, args=(body, host), daemon=True) for host in self.hosts]
        for thread in threads:
            thread.start()
        self._hand_over()
        self._ended.acquire()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _body(self, body: Callable[[Host], None], host: Host) -> None:
        host.goes_on.acquire()
        try:
            if self._failure is None:
                body(host)
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised again where the simulation was started
            self._fail(error)
        host.done = True
        self._hand_over()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def take_turns(self, host: Host) -> None:
        """Lets every host that is behind this one, or can go on before it, catch up."""
        if self._hand_over(host):
            host.goes_on.acquire()
            if self._failure is not None:
                raise Stopped

    def _hand_over(self, current: Host | None = None) -> bool:
        """Lets the host run that can go on first. False if that is the current one."""
        left = [host for host in self.hosts if not host.done]
        if not left:
            self._ended.release()
            return False
        first = min(left, key=lambda host: (host.wakes_ns, host is not current, host.rank))
        if self._failure is None and first.wakes_ns == _NEVER:
            self._fail(RuntimeError("every rank waits for another one: their collectives do not match"))
            first = current or left[0]
        elif self._failure is None:
            while self._watched_ns <= first.wakes_ns:
                self._watch(self._watched_ns)
                self._watched_ns += self._every_ns
        self.running = first
        if first is current:
            if self._failure is not None:
                raise Stopped
            return False
        first.goes_on.release()
        return True
