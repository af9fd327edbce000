"""Prints when its objects die, with the collector off: by their last reference, at the same place with the recorder and without."""

import gc
import importlib.util
import io
import queue
import sys
import threading
import time
import traceback
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

LOOKED_AT_S = 1.0  # several looks into the making of a batch, and many clocked steps
KEPT = []


class Steps:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, sample):
        for step in self.transforms:
            sample = step(sample)
        return sample


class Double:
    def __call__(self, sample):
        return sample * 2


class Data(Dataset):
    def __init__(self, broken=-1):
        self.broken, self.transform = broken, Steps(Double(), Double())

    def __len__(self):
        return 256

    def __getitem__(self, index):
        if index == self.broken:
            raise ValueError("a broken sample")
        return self.transform(torch.full((3,), float(index)))


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.zeros(64, 3)


class Collate:
    def __call__(self, samples):
        return torch.stack(samples)


class Batches(queue.Queue):
    pass


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("a backward of the job's own")


def watch(**named):
    for name, item in named.items():
        KEPT.append(weakref.ref(item, lambda _, name=name: print("died:", name)))
        print(name, sys.getrefcount(item))


def train(model, optimizer, batches):
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        yield batch, loss


def in_process(dataset, collate_fn=None):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = DataLoader(dataset, batch_size=8, collate_fn=collate_fn)
    watch(dataset=dataset, loader=loader, model=model, optimizer=optimizer, sampler=loader.sampler)
    ends = time.perf_counter() + LOOKED_AT_S
    while time.perf_counter() < ends:
        for _ in train(model, optimizer, loader):
            pass
    batches = iter(loader)
    batch, loss = next(train(model, optimizer, batches))
    watch(iterator=batches, fetcher=batches._dataset_fetcher, batch=batch, loss=loss)
    del batch, loss, _
    print("left early")
    del batches
    print("left", sys.getrefcount(dataset), sys.getrefcount(loader), sys.getrefcount(model))


def with_workers():
    loader = DataLoader(Data(), batch_size=64, num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    watch(loader=loader, iterator=batches, dataset=loader.dataset, worker=batches._workers[0])
    print(next(batches).shape)
    del batches
    print("left")


def with_an_error():
    data = Data(broken=100)
    loader = DataLoader(data, batch_size=8)
    batches = iter(loader)
    watch(dataset=data, loader=loader, iterator=batches)
    try:
        for _ in batches:
            pass
    except ValueError as error:
        kept = error
    del batches, loader, data, _
    print("kept by its traceback", len(traceback.format_tb(kept.__traceback__)))
    kept = None


def a_backward_that_raises():
    x = torch.ones(2, requires_grad=True)
    loss = Fails.apply(x).sum()
    watch(x=x, loss=loss)
    try:
        loss.backward()
    except ValueError as error:
        kept = error
    del loss, x
    print("kept by its traceback", len(traceback.format_tb(kept.__traceback__)))
    kept = None


def from_a_queue():
    """Filled by a thread that fetches, from the first batch on: the recorder comes to know of it, and watches its queue."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    warm_up()
    for _ in range(3):
        channel = Batches(maxsize=2)
        watch(channel=channel, condition=channel.not_empty)

        def fill(channel=channel):
            for batch in DataLoader(Data(), batch_size=8):
                channel.put(batch)
            channel.put(None)

        filler = threading.Thread(target=fill)
        filler.start()
        for _ in train(model, optimizer, iter(channel.get, None)):
            pass
        filler.join()
        last = torch.ones(1)
        watch(last=last)
        channel.put(last)
        print("in a queue of its own" if "_get" in vars(channel) else "in a queue", file=sys.stderr)
        del last, fill, filler, _
        del channel
        print("left")


def in_ddp():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    watch(ddp=model, module=model.module, optimizer=optimizer)
    for _ in range(40):
        for _ in train(model, optimizer, [torch.ones(2, 3)]):
            pass
    moved, group = torch.ones(4), dist.new_group([0])
    work = dist.all_reduce(moved, group=group, async_op=True)
    work.wait()
    watch(moved=moved, group=group)
    print(sys.getrefcount(work))
    del work, moved
    dist.destroy_process_group(group)
    del group
    print("left the group")
    del model, optimizer, _
    print("left")


def scaled_and_saved():
    model = nn.Linear(3, 1)
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.AdamW(model.parameters())
    watch(model=model, scaler=scaler, optimizer=optimizer)
    for _ in range(3):
        scaler.scale(model(torch.ones(1, 3)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, io.BytesIO())


def only_found():
    spec = importlib.util.find_spec("torch._dynamo.eval_frame" if "torch._dynamo" in sys.modules else "torch.fx")
    watch(loader=spec.loader)


def warm_up():
    """Runs a few steps: torch's imports leave frames behind in cycles of their own."""
    model = nn.Linear(3, 1)
    list(train(model, torch.optim.SGD(model.parameters(), lr=1e-9), [torch.ones(2, 3)]))


def main():
    if len(sys.argv) > 1:
        gc.disable()
        return from_a_queue()
    warm_up()
    gc.collect()
    gc.disable()
    for call in (
        lambda: in_process(Data()),
        lambda: in_process(Stream(), Collate()),
        with_workers,
        with_an_error,
        a_backward_that_raises,
        in_ddp,
        scaled_and_saved,
        only_found,
    ):
        print("==", call.__name__)
        call()
    print("alive at the end:", sum(kept() is not None for kept in KEPT))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
