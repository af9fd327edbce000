"""Cost of merging a large job live: nodes that send like real ones, and the receiver's CPU time and memory.

    python tests/bench/merging.py --nodes 128 --ranks 8

The receiver is a separate process; the nodes are sockets of this one. Then a report is made from all that arrived, as a screen or
`rn50-advisor report` would.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zmq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rn50_advisor.advisor.merge.curve_keys import curve_keys  # noqa: E402
from rn50_advisor.advisor.merge.node_frames import StepsFrame, packed  # noqa: E402
from rn50_advisor.advisor.merge.run_tail import RunTail  # noqa: E402
from rn50_advisor.advisor.model.metrics import (  # noqa: E402
    SAMPLES,
    Sample,
)
from rn50_advisor.advisor.model.recording import Process  # noqa: E402
from rn50_advisor.advisor.store.run_writer import RunWriter  # noqa: E402
from rn50_advisor.probes.rank.layout import (  # noqa: E402
    COMM_FIELDS,
    KIND_COMM,
    KIND_STEP,
    STEP_FIELDS,
)

TOKEN = b"0123456789abcdef0123456789abcdef"
_SECOND = 1_000_000_000
_GPU_LEVELS = ("gpu.util_pct", "gpu.power_w", "gpu.temp_c", "gpu.sm_clock_mhz", "gpu.mem_used_bytes")
_SOUND = ("cpu.steal", "psi.", "mem.swap", "mem.oom", "cgroup.", "gpu.")  # counters that stand still on a sound host
_LISTEN = """
import sys, threading
from pathlib import Path
from rn50_advisor.advisor.merge.receiver import Receiver
r = Receiver(("127.0.0.1", 0), sys.argv[2].encode(), Path(sys.argv[1]), report=print)
ending = threading.Event()
thread = threading.Thread(target=r.serve, args=(ending,))
thread.start()
print(r.address[1], flush=True)
sys.stdin.readline()
ending.set()
thread.join(20.0)
print(r.frames, r.refused, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=8, help="per node")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--period-s", type=float, default=10.0)
    parser.add_argument("--step-ms", type=float, default=250.0)
    parser.add_argument("--bytes", type=int, default=2048, help="a rank and frame; noise fills what its tables leave")
    arguments = parser.parse_args()
    needed = arguments.nodes + 64
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * needed), hard))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), arguments), indent=2))


def measure(folder: Path, a: argparse.Namespace) -> dict[str, Any]:
    nodes, frames = [], []
    for number in range(a.nodes):
        with tempfile.TemporaryDirectory() as own:
            node = Sent(number, a, Path(own))
            nodes.append(node)
            frames.append([node.frames(round_) for round_ in range(a.rounds)])
            node.close()
    steps = [
        len(body) / a.ranks for of_node in frames for round_ in of_node for kind, body in round_ if kind == "steps"
    ]
    listener = subprocess.Popen(
        [sys.executable, "-c", _LISTEN, str(folder), TOKEN.decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert listener.stdin and listener.stdout
    port = int(listener.stdout.readline())
    idle_mb, idle_s = resident_mb(listener.pid), cpu_s(listener.pid)
    context = zmq.Context()
    links = [connect(context, port) for _ in nodes]
    joined_s = cpu_s(listener.pid)
    began_s = time.monotonic()
    for round_ in range(a.rounds):
        for link, (number, of_node) in zip(links, enumerate(frames), strict=True):
            due_s = began_s + a.period_s * (round_ + number / a.nodes)
            time.sleep(max(0.0, due_s - time.monotonic()))
            for kind, body in of_node[round_]:
                link.send_multipart([f"node {number}".encode(), kind.encode(), body])
    time.sleep(max(0.0, began_s + a.period_s * a.rounds - time.monotonic()))
    wall_s, busy_s, peak_mb = time.monotonic() - began_s, cpu_s(listener.pid) - joined_s, peak_resident_mb(listener.pid)
    context.destroy(linger=1000)
    output, _ = listener.communicate("\n", timeout=60)
    inbox = sum(file.stat().st_size for file in folder.iterdir())
    return {
        "ranks": a.nodes * a.ranks,
        "bytes a rank and frame": {"median": statistics.median(steps), "most": max(steps)},
        "of these tables, bytes": round(statistics.median(of for node in nodes for of in node.tables)),
        "making a frame, CPU ms a node": round(1000 * statistics.mean(of for node in nodes for of in node.making_s), 2),
        "frames taken, refused": output.split()[-2:],
        "listening, CPU share of one core": round(busy_s / wall_s, 5),
        "joining, CPU s": round(joined_s - idle_s, 3),
        "listening, resident MB": {"idle": round(idle_mb, 1), "most": round(peak_mb, 1)},
        "inbox, MB after": {"minutes": round(wall_s / 60, 1), "MB": round(inbox / 1e6, 2)},
        **reading(folder),
    }


class Sent:
    """One node, whose ranks train in lockstep with all others, and the frames that it sends in each round."""

    def __init__(self, number: int, a: argparse.Namespace, folder: Path) -> None:
        self.a, self.number = a, number
        self.random = np.random.default_rng(number)
        self.making_s: list[float] = []
        self.tables: list[float] = []  # bytes per rank in a frame, without the noise
        self.begin_ns = 10_000 * _SECOND + 1000 * number * _SECOND
        meta = {"name": "job", "argv": ["torchrun", "train.py"], "cwd": "/job", "host": f"node{number:03}"}
        self.writer = RunWriter.create(folder, meta={**meta, "started_unix_s": 1.7e9, "started_ns": self.begin_ns})
        self.tail = RunTail(folder)
        for local in range(a.ranks):
            rank = number * a.ranks + local
            self.writer.put_process(
                Process(1000 + local, "rank", rank, local, None, 1, "python train.py", self.begin_ns)
            )
            variables = {"RANK": str(rank), "GROUP_RANK": str(number), "WORLD_SIZE": str(a.nodes * a.ranks)}
            loader = {"id": 0, "num_workers": 8, "file": "train.py", "line": 90, "dataset": {"type": "ImageFolder"}}
            self.writer.put_facts(
                1000 + local,
                {"environment_rank": variables, "loaders": [loader] * 2, "ddp": [{"bucket_cap_bytes": 1 << 25}]},
            )

    def close(self) -> None:
        self.tail.close()
        self.writer.close()

    def frames(self, round_: int) -> list[tuple[str, bytes]]:
        a = self.a
        steps = round(1000 * a.period_s / a.step_ms)
        for local in range(a.ranks):
            rank = self.number * a.ranks + local
            rows, stamps = zip(*(self._step(round_ * steps + n, rank) for n in range(steps)), strict=True)
            self.writer.put_records(KIND_STEP, rank, [(0, row) for row in rows])
            self.writer.put_records(KIND_COMM, rank, [(16, row) for row in stamps])
            self.writer.put_position(rank, "forward", (round_ + 1) * steps, self.begin_ns)
        now_ns = self.begin_ns + round((round_ + 1) * a.period_s * _SECOND)
        self.writer.put_samples(now_ns, self._samples())
        self.writer.commit()
        began_s = time.process_time()
        frame = self.tail.steps_frame(now_ns)
        plain = len(packed(frame))
        self.making_s.append(time.process_time() - began_s)
        self.tables.append(plain / a.ranks)
        found = [("steps", self._filled(frame, plain))]
        if round_ == 0:
            found.insert(0, ("state", packed(self.tail.state_frame(now_ns))))
        return found

    def _filled(self, frame: StepsFrame, plain: int) -> bytes:
        """Packs the frame with incompressible noise up to `--bytes` per rank. `plain`: the frame's bytes without noise."""
        short = self.a.bytes * self.a.ranks - plain
        noise = base64.b64encode(self.random.bytes(max(0, short))).decode()
        return packed(msgspec.structs.replace(frame, samples={**frame.samples, "noise": {noise: 0.0}}))

    def _noise(self, most_ns: float) -> int:
        return round(most_ns * self.random.random())

    def _step(self, step: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        length = round(self.a.step_ms * 1e6)
        start = self.begin_ns + step * length
        forward = round(length * (0.3 + 0.02 * self.random.random() + (0.2 if rank == 700 else 0.0)))
        wait, optimizer = self._noise(0.02 * length), round((0.05 + 0.01 * self.random.random()) * length)
        gap = self._noise(0.02 * length)
        values = {
            "step": step, "t_start_ns": start, "t_end_ns": start + length, "input_wait_ns": wait, "forward_ns": forward,
            "backward_ns": length - forward - wait - optimizer - gap, "optimizer_ns": optimizer, "gap_ns": gap,
            "samples": 256, "micro_batches": 1,
            "forward_cpu_ns": forward - self._noise(5e6), "backward_cpu_ns": length // 3 + self._noise(5e6),
            "optimizer_cpu_ns": optimizer - self._noise(1e6), "gap_cpu_ns": gap // 2, "run_delay_ns": self._noise(1e6),
            "self_ns": 20_000 + self._noise(2e4), "compute_system_ns": self._noise(2e6),
        }  # fmt: skip
        released = start + length - optimizer - gap
        left = length - forward - wait - optimizer - gap - round(0.4 * length)
        stamps = {
            "step": step,
            "iteration": step,
            "comm_ns": left + self._noise(1e6),
            "compute_ns": length // 2,
            "overlap_ns": self._noise(2e6),
            "compute_end_ns": released - left,
            "comm_end_ns": released,
            "backward_start_ns": released - length // 2,
        }
        return tuple(values.get(n, 0) for n in STEP_FIELDS), tuple(stamps.get(n, 0) for n in COMM_FIELDS)

    def _samples(self) -> list[Sample]:
        host = [m for m, about in SAMPLES.items() if about.scope.split("|")[0] in ("host", "job")]
        of_rank = [m for m, about in SAMPLES.items() if about.scope == "pid" and m.startswith("cgroup.")]
        ranks = [Sample(m, f"pid:{1000 + n}", float(n * 1000003)) for m in of_rank for n in range(self.a.ranks)]
        gpus = [m for m, about in SAMPLES.items() if about.scope == "gpu"][:30]
        return [
            *(Sample(m, "host", 0.0 if m.startswith(_SOUND) else float(self.random.random() * 1e6)) for m in host),
            *ranks,
            *(
                Sample(m, f"gpu:{n}", float(self.random.integers(60, 90)) if m in _GPU_LEVELS else 0.0)
                for m in gpus
                for n in range(self.a.ranks)
            ),
        ]


def connect(context: zmq.Context[zmq.Socket[bytes]], port: int) -> zmq.Socket[bytes]:
    link = context.socket(zmq.PUSH)
    link.curve_publickey, link.curve_secretkey = curve_keys(TOKEN, "sender")
    link.curve_serverkey = curve_keys(TOKEN, "listener")[0]
    link.immediate = True
    link.connect(f"tcp://127.0.0.1:{port}")
    link.poll(60_000, zmq.POLLOUT)
    return link


def reading(folder: Path) -> dict[str, Any]:
    from rn50_advisor.advisor.merge.inbox import INBOX_NAME, sent_recordings
    from rn50_advisor.advisor.merge.merging import merge
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    began_s = time.monotonic()
    own = sent_recordings(folder / INBOX_NAME)
    read_s = time.monotonic() - began_s
    merged = merge(own)
    merged_s = time.monotonic() - began_s - read_s
    report = diagnose(merged)
    whole_s = time.monotonic() - began_s
    return {
        "reading, s": round(read_s, 2),
        "merging, s": round(merged_s, 2),
        "report, s": round(whole_s - read_s - merged_s, 2),
        "verdict": f"{report.verdict.rule} {report.verdict.title} {report.verdict.summary[:60]}",
        "nodes, ranks in the report": [len(report.nodes), len(report.ranks)],
        "reader, most resident MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    return _status_mb(pid, "VmRSS")


def peak_resident_mb(pid: int) -> float:
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, name: str) -> float:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith(name + ":")) / 1024


if __name__ == "__main__":
    main()
