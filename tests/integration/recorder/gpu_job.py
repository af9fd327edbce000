"""A job of two ranks that appear to the recorder to train on GPUs, without torch: `gpu_job.py STEPS UUID UUID`.

The fork stands for the launcher's children. Rank 1 takes twice as long for a step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from rn50_advisor.probes.rank.layout import KIND_STEP, PHASE_CODE, ROLE_RANK, STEP_FIELDS
from rn50_advisor.probes.rank.ring import Ring

STEP_S = 0.02


def train(rank: int, steps: int, uuid: str) -> None:
    folder, pid = Path(os.environ["RN50_ADVISOR_DIR"]), os.getpid()
    cuda = {"device": 0, "uuid": uuid, "visible": uuid, "memory_bytes": 40 << 30}
    (folder / f"facts-{pid}.json").write_text(json.dumps({"pid": pid, "cuda": cuda, "cpus_allowed": [0]}))
    ring = Ring(f"{folder}/rank-{pid}.ring", slots=1024, role=ROLE_RANK, rank=rank, local_rank=rank, world_size=2)
    for number in range(steps):
        begin = time.perf_counter_ns()
        time.sleep(STEP_S * (1 + rank))
        end = time.perf_counter_ns()
        values = dict.fromkeys(STEP_FIELDS, 0)
        values.update(step=number, t_start_ns=begin, t_end_ns=end, forward_ns=end - begin, samples=8, micro_batches=1)
        ring.write(KIND_STEP, 0, tuple(values.values()))
        ring.phase(PHASE_CODE["forward"], number + 1, end)
    ring.end()


def main() -> None:
    steps, uuids = int(sys.argv[1]), sys.argv[2:4]
    child = os.fork()
    rank = 0 if child else 1
    train(rank, steps // (1 + rank), uuids[rank])
    if child:
        os.waitpid(child, 0)
    else:
        os._exit(0)


if __name__ == "__main__":
    main()
