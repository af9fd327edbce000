"""Two ranks under DDP, the second of which starts its backward late; both write DDP's stamps. The arguments: a folder, milliseconds."""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 512


def work(rank, folder, late_s):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6))), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen = {}
    for _ in range(240 if late_s else 800):  # of short steps one in 64 is stamped
        loss = model(torch.rand(32, WIDTH)).square().mean()
        if rank == 1:
            time.sleep(late_s)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        data = model._get_ddp_logging_data()
        if data.get("backward_comm_time", 0) > 0:
            times = (data["backward_comm_time"], data["backward_compute_comm_overlap_time"])
            # keeps the first times of each start: when the rate of stamps changes, DDP mixes a start with another iteration's times
            seen.setdefault(data["backward_compute_time_start"], times)
    Path(folder, f"stamps-{rank}.json").write_text(json.dumps([(start, *times) for start, times in seen.items()]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1], float(sys.argv[2]) / 1e3), nprocs=2)
