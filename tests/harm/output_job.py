"""Raises, warns and logs at every boundary that the recorder stands at, and shows what came of it: the same with it and without."""

import inspect
import io
import json
import logging
import os
import pickle
import signal
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

logging.basicConfig(stream=sys.stderr, format="%(pathname)s:%(lineno)d %(funcName)s %(message)s")
HERE = {"none": lambda x: x}  # a lambda: cannot be pickled


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        speak("in a backward")
        raise ValueError("a backward of the job's own")


class Interrupted(Fails):
    @staticmethod
    def backward(ctx, grad):
        signal.raise_signal(signal.SIGINT)


class Data(Dataset):
    def __init__(self, broken=-1, made_of=None, speaks=-1):
        self.broken, self.made_of, self.speaks = broken, made_of, speaks

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == self.speaks:
            speak("in a data set")
        if index == self.broken:
            try:
                {}["no such picture"]
            except KeyError as error:
                raise ValueError("a broken sample") from error
        return torch.full((3,), float(index))


class Stream(IterableDataset):
    def __len__(self):
        return 2

    def __iter__(self):
        yield from torch.zeros(6, 3)


class Broken(torch.optim.SGD):
    def step(self, closure=None):
        speak("in an optimizer")
        raise ValueError("an optimizer of the job's own")


def speak(about):
    """Warns and logs in the name of each of its callers."""
    for level in range(1, 9):
        warnings.warn(f"{about}, {level} up", stacklevel=level)
        if sys.version_info >= (3, 11):  # before, logging counts all frames
            logging.warning("%s, %d up", about, level, stacklevel=level)


def weights():
    return nn.Linear(3, 1)


def train(model, optimizer, loader):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def a_backward_that_raises():
    Fails.apply(torch.ones(2, requires_grad=True)).sum().backward()


def a_backward_that_raises_called_by_its_other_name():
    torch.autograd.backward([Fails.apply(torch.ones(2, requires_grad=True)).sum()])


def a_second_backward():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


def a_backward_with_a_warning():
    x = torch.ones(2, requires_grad=True)
    torch.autograd.backward(x.exp().sum(), grad_variables=torch.tensor(1.0))
    x.exp().sum().backward(create_graph=True)


def an_interrupted_backward():
    Interrupted.apply(torch.ones(2, requires_grad=True)).sum().backward()


def an_error_amid_the_handling_of_another():
    try:
        a_second_backward()
    except RuntimeError:
        a_backward_that_raises()


def a_model_without_gradients_for_ddp():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    nn.parallel.DistributedDataParallel(weights().requires_grad_(False))


def a_warning_of_ddp():
    nn.parallel.DistributedDataParallel(weights(), device_ids=None, bucket_cap_mb=0, check_reduction=True)


def a_collective_of_no_tensor():
    dist.all_reduce("no tensor")


def a_collective_from_a_rank_that_is_not():
    dist.broadcast(torch.ones(1), src=7)


def a_collective_of_what_cannot_be_pickled():
    dist.all_gather_object([None], HERE["none"])


def a_collective_that_is_waited_for():
    dist.all_reduce(torch.ones(1), async_op=True).wait("no timeout")


def a_scaler_with_a_broken_optimizer():
    model = weights()
    scaler, optimizer = torch.amp.GradScaler("cpu"), Broken(model.parameters(), lr=0.1)
    scaler.scale(model(torch.ones(1, 3)).sum()).backward()
    scaler.step(optimizer)


def a_scaler_without_a_backward():
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    scaler.step(torch.optim.SGD(weights().parameters(), lr=0.1))


def a_closure_that_raises():
    def closure():
        speak("in a closure")
        raise ValueError("a closure of the job's own")

    torch.optim.SGD(weights().parameters(), lr=0.1).step(closure)


def a_scheduler_before_its_optimizer():
    optimizer = torch.optim.SGD(weights().parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()


def a_scheduler_after_its_optimizer():
    model = weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    train(model, optimizer, DataLoader(Data(), batch_size=16))
    scheduler.step()


def a_loader_of_no_size():
    DataLoader(Data(), batch_size=-1)


def a_loader_of_nothing():
    DataLoader()


def a_loader_of_many_workers():
    DataLoader(Data(), num_workers=1000)


def a_loader_that_pins():
    list(DataLoader(Data(speaks=3), batch_size=32, pin_memory=True))


def a_stream_longer_than_it_says():
    list(DataLoader(Stream(), batch_size=None))


def a_broken_sample_in_process():
    train(weights(), torch.optim.SGD([torch.zeros(1)], lr=0.1), DataLoader(Data(broken=9), batch_size=4))


def a_broken_sample_under_no_grad():
    with torch.no_grad():
        list(DataLoader(Data(broken=9), batch_size=4))


def a_broken_sample_in_a_worker():
    # one batch: whether the error is met before or after the wait for it depends on which process is first
    list(DataLoader(Data(broken=3), batch_size=64, num_workers=1, multiprocessing_context="fork"))


def a_data_set_that_cannot_be_sent():
    list(DataLoader(Data(made_of=HERE["none"]), num_workers=1, multiprocessing_context="spawn"))


def an_iterator_that_is_exhausted():
    batches = iter(DataLoader(Data(), batch_size=64))
    next(batches)
    next(batches)


def a_shape_that_does_not_fit_amid_training():
    model = weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(12):  # in some of these steps the recorder looks closer
        train(model, optimizer, DataLoader(Data(), batch_size=8))
        try:
            model(torch.ones(2, 4))
        except RuntimeError:
            traceback.print_exc()
        try:
            list(DataLoader(Data(broken=epoch), batch_size=8))
        except ValueError:
            traceback.print_exc()


def a_save_of_what_cannot_be_pickled():
    torch.save(HERE, io.BytesIO())


def a_save_to_nowhere():
    torch.save({}, "/no/such/folder/model.pt")


def an_fsync_of_nothing():
    os.fsync(-1)


def a_backward_at_the_end_of_the_stack():
    def deeper(n):
        try:
            return deeper(n + 1)
        except RecursionError:
            if n % 5 == 0:
                torch.ones(1, requires_grad=True).sum().backward()
            return n

    depth = deeper(0)
    print("recursed" if depth else "not", file=sys.stderr)


def names_of_what_is_wrapped():
    iterators = torch.utils.data.dataloader
    for what in (
        torch.autograd.backward, torch.save, torch.amp.GradScaler.step, DataLoader.__init__, dist.all_reduce, dist.barrier,
        iterators._BaseDataLoaderIter.__next__, iterators._MultiProcessingDataLoaderIter._reset, nn.DataParallel.__init__,
        nn.parallel.DistributedDataParallel.__init__, nn.Embedding.__init__, torch.utils.data._utils.worker._worker_loop,
    ):  # fmt: skip
        properties = (
            what.__module__,
            what.__qualname__,
            what.__name__,
            what.__doc__,
            what.__annotations__,
        )
        print(inspect.signature(what), inspect.getfullargspec(what), properties)
        print(inspect.getsource(what), inspect.getsourcelines(what)[1])
        assert pickle.loads(pickle.dumps(what)) is what or "." in what.__qualname__


def what_warnings_have_left():
    registries = sorted(n for n, module in sys.modules.items() if getattr(module, "__warningregistry__", None))
    print(json.dumps([registries, [repr(each) for each in warnings.filters]]))
    print(sys.exc_info(), hasattr(sys, "last_value"))


def main():
    own = [call for name, call in globals().items() if inspect.isfunction(call) and "_" in name]
    for call in own:
        sys.stdout.flush()
        print("==", call.__name__, file=sys.stderr, flush=True)
        try:
            call()
        except BaseException:  # noqa: BLE001 - Ctrl-C, too
            traceback.print_exc()
        if call in (a_backward_that_raises, a_scheduler_after_its_optimizer):
            print(sys.exc_info(), file=sys.stderr)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        globals()[sys.argv[1]]()
    else:
        main()
