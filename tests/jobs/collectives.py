"""Two ranks that call collectives from Python in each step; the first prints what a job can observe. The argument is a folder."""

import inspect
import sys
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

STEPS = 12


def averaged(values):
    dist.all_reduce(values)
    return values / 2


def observations(rank):
    yield str(inspect.signature(dist.all_reduce)), dist.all_reduce.__module__, dist.all_gather.__doc__[:40]
    # the other rank's call matches, compiled or not, and dynamo takes long to load
    average = torch.compile(averaged, backend="eager", fullgraph=True) if rank == 0 else averaged
    yield average(torch.full((3,), float(rank))).tolist(), rank or dict(torch._dynamo.utils.counters["graph_break"])
    try:
        dist.all_reduce("no tensor")
    except TypeError:
        yield traceback.format_exc()
    parts = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    yield parts
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    yield objects, dist.get_backend()


def work(rank, folder):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.rand(8, 64)).square().sum().backward()
        waiting = dist.all_reduce(model.weight.grad, async_op=True)
        dist.all_reduce(model.bias.grad)
        assert waiting.wait() is True
        optimizer.step()
    lines = [repr(item) for item in observations(rank)]
    if rank == 0:
        print(*lines, model.weight.sum().item().hex(), sep="\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
