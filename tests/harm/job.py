"""A small training job that prints all it can see of itself: alone and under the advisor it must print the same, byte for byte.

`python job.py LOOP[,LOOP...] [ACTION ...]`: loops are the shapes a training loop can have, actions what a job may do to its own process.
Every loss is printed with all its bits. Nothing here knows of the advisor.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

ACTIONS: dict[str, Callable[[], None]] = {}
LOOPS: dict[str, Callable[[], None]] = {}
NOBODY = 65534


def action(function: Callable[[], None]) -> Callable[[], None]:
    ACTIONS[function.__name__] = function
    return function


def loop(function: Callable[[], None]) -> Callable[[], None]:
    LOOPS[function.__name__] = function
    return function


# -- what a job may do to its process, before torch is imported -------------------------------------------------------------------


@action
def installs_signal_handlers() -> None:
    def print_signal(number: int, frame: Any) -> None:
        print("signal", number, frame.f_code.co_name != "", flush=True)

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, print_signal)


@action
def has_an_excepthook() -> None:
    def print_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        names = []
        while trace is not None:
            names.append((os.path.basename(trace.tb_frame.f_code.co_filename), trace.tb_frame.f_code.co_name))
            trace = trace.tb_next
        print("excepthook", kind.__name__, error, names, flush=True)

    sys.excepthook = print_error


@action
def audits() -> None:
    """Counts what the job's own folder is opened for; what others open is theirs."""
    own, seen = os.getcwd(), []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(own):
            seen.append(os.path.basename(arguments[0]))

    sys.addaudithook(hook)
    atexit.register(lambda: print("audited", sorted(set(seen)), flush=True))


@action
def traces() -> None:
    own, lines = __file__ if "__file__" in globals() else "<stdin>", [0]

    def local(frame: Any, event: str, argument: Any) -> Any:
        lines[0] += event == "line"
        return local

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename == own and frame.f_code.co_name == "_step" else None

    sys.settrace(tracer)
    atexit.register(lambda: print("traced", lines[0], sys.gettrace() is tracer, flush=True))


@action
def profiles() -> None:
    calls = [0]

    def profiler(frame: Any, event: str, argument: Any) -> None:
        calls[0] += frame.f_code.co_name == "_step" and event == "call"

    sys.setprofile(profiler)
    atexit.register(lambda: print("profiled", calls[0], sys.getprofile() is profiler, flush=True))


@action
def closes_all_descriptors() -> None:
    os.closerange(3, 4096)


@action
def closes_all_descriptors_while_it_trains() -> None:
    MIDWAY.append(_replace_descriptors)


def _replace_descriptors() -> None:
    """As a daemon does: closes whatever there is, and takes the numbers for files of its own."""
    os.closerange(3, 4096)
    own = [os.open("own-%d" % number, os.O_RDWR | os.O_CREAT, 0o600) for number in range(16)]
    for descriptor in own:
        os.write(descriptor, b"mine %d" % descriptor)
    MIDWAY_STATE.extend(own)
    atexit.register(lambda: print("own files", [os.pread(each, 64, 0) for each in own], flush=True))


@action
def changes_its_root() -> None:
    os.mkdir("root")
    MIDWAY.append(lambda: os.chroot("root"))


@action
def changes_its_user() -> None:
    MIDWAY.append(lambda: (os.setgid(NOBODY), os.setuid(NOBODY)))


@action
def changes_its_user_at_once() -> None:
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@action
def may_open_few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


@action
def may_write_small_files() -> None:
    """And dies where it writes a larger one, as a C program would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


@action
def deletes_its_folder() -> None:
    os.chdir(tempfile.mkdtemp())
    MIDWAY.append(lambda: os.rmdir(os.getcwd()))


@action
def turns_warnings_into_errors() -> None:
    warnings.simplefilter("error")


@action
def collects_all_the_time() -> None:
    gc.set_threshold(1)


@action
def keeps_functions_as_attributes() -> None:
    def use() -> None:
        kind = type("Kind", (), {"sync": os.fsync})
        with tempfile.TemporaryFile() as file:
            print(kind().sync(file.fileno()), repr(os.fsync), pickle.loads(pickle.dumps(os.fsync)) is os.fsync)
        import torch

        threads = torch.set_num_threads
        print(threads(torch.get_num_threads()), repr(threads), pickle.loads(pickle.dumps(threads)) is threads)

    MIDWAY.append(use)


@action
def has_no_collector() -> None:
    gc.disable()


@action
def forks_while_it_trains() -> None:
    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(7)
        print("child", os.waitpid(child, 0)[1], flush=True)

    MIDWAY.append(fork)


@action
def starts_children() -> None:
    def start() -> None:
        import subprocess

        program = "import sys, os; print(sys.path, sorted(os.listdir('/proc/self/fd')))"
        print(
            subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout,
            flush=True,
        )

    MIDWAY.append(start)


@action
def exits_by_code() -> None:
    atexit.register(functools.partial(print, "atexit", flush=True))
    ENDING.append(lambda: sys.exit(3))


@action
def exits_at_once() -> None:
    ENDING.append(lambda: os._exit(5))


@action
def raises() -> None:
    def fail() -> None:
        raise RuntimeError("the job's own")

    ENDING.append(fail)


@action
def is_killed() -> None:
    ENDING.append(lambda: os.kill(os.getpid(), signal.SIGKILL))


@action
def is_terminated() -> None:
    ENDING.append(lambda: os.kill(os.getpid(), signal.SIGTERM))


@action
def crashes() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ENDING.append(lambda: ctypes.string_at(0))


MIDWAY: list[Callable[[], Any]] = []  # called once, in the middle of a loop
MIDWAY_STATE: list[int] = []
ENDING: list[Callable[[], Any]] = []  # called after the last output

# -- loops --------------------------------------------------------------------------------------------------------------------------


def _parts() -> Any:
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
    return torch, model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _data(torch: Any, count: int = 64) -> Any:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, torch.randint(0, 4, (count,), generator=generator))


def _print_loss(loss: Any) -> None:
    print(float(loss.detach()).hex(), flush=True)


def _midway(step: int, at: int = 9) -> None:
    if step == at:
        while MIDWAY:
            MIDWAY.pop()()


def _step(torch: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def _loaded(**options: Any) -> None:
    torch, model, optimizer = _parts()
    loader = torch.utils.data.DataLoader(_data(torch), batch_size=4, shuffle=True, **options)
    step = 0
    for _ in range(2):
        for x, y in loader:
            _print_loss(_step(torch, model, optimizer, x, y))
            step += 1
            _midway(step)


@loop
def plain() -> None:
    _loaded()


@loop
def fork_workers() -> None:
    _loaded(num_workers=2, multiprocessing_context="fork")


@loop
def forkserver_workers() -> None:
    _loaded(num_workers=2, multiprocessing_context="forkserver", persistent_workers=True)


@loop
def spawn_workers() -> None:
    _loaded(num_workers=1, multiprocessing_context="spawn", persistent_workers=True)


@loop
def leaves_its_loader() -> None:
    torch, model, optimizer = _parts()
    for x, y in torch.utils.data.DataLoader(_data(torch), batch_size=4):
        _print_loss(_step(torch, model, optimizer, x, y))
        break
    for step in range(40):
        _print_loss(_step(torch, model, optimizer, x, y))
        _midway(step)


@loop
def leaves_its_workers() -> None:
    torch, model, optimizer = _parts()
    for x, y in torch.utils.data.DataLoader(_data(torch), batch_size=4, num_workers=1):
        _print_loss(_step(torch, model, optimizer, x, y))
        break
    for _ in range(10):
        _print_loss(_step(torch, model, optimizer, x, y))


@loop
def without_loader() -> None:
    torch, model, optimizer = _parts()
    x, y = _data(torch)[:]
    for step in range(60):
        _print_loss(_step(torch, model, optimizer, x, y))
        _midway(step)


@loop
def two_optimizers() -> None:
    torch, model, optimizer = _parts()
    other = torch.nn.Linear(4, 1)
    second = torch.optim.Adam(other.parameters())
    for x, _ in torch.utils.data.DataLoader(_data(torch), batch_size=4):
        loss = other(model(x).detach()).square().mean()
        second.zero_grad()
        loss.backward()
        second.step()
        loss = (1 - other(model(x))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _print_loss(loss)


@loop
def accumulates_and_evaluates() -> None:
    torch, model, optimizer = _parts()
    loader = torch.utils.data.DataLoader(_data(torch), batch_size=4)
    for _ in range(2):
        for step, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if step % 4 == 3:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            _print_loss(loss)
        model.eval()
        with torch.no_grad():
            for x, y in loader:
                _print_loss(torch.nn.functional.cross_entropy(model(x), y))
        model.train()


@loop
def with_a_pass_for_each_loss() -> None:
    torch, model, optimizer = _parts()
    weights = list(model.parameters())
    for x, y in torch.utils.data.DataLoader(_data(torch), batch_size=4):
        logits = model(x)
        losses = [torch.nn.functional.cross_entropy(logits, y), logits.square().mean(), logits.abs().mean()]
        optimizer.zero_grad()
        for number, loss in enumerate(losses):
            loss.backward(retain_graph=number < 2)
            print([weight._backward_hooks for weight in weights], weights[0].grad._version)
        print(logits.grad_fn.metadata)
        optimizer.step()
        _print_loss(losses[0])


@loop
def with_frozen_networks() -> None:
    """Two of one class that see each text again, one that draws random numbers, and one that is changed; what the job sees of them."""
    torch, *_ = _parts()
    torch.manual_seed(1)

    class Encoder(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, noise: float = 0.0) -> None:
            super().__init__()
            self.noise, self.layer = noise, torch.nn.Linear(8, 300)

        def forward(self, x: Any) -> Any:
            drawn = self.noise * torch.randn(len(x), 300) if self.noise else 0.0
            return torch.relu(self.layer(x)) + drawn

    networks = [Encoder().eval(), Encoder().eval().requires_grad_(False), Encoder(0.1).eval(), Encoder().eval()]
    head = torch.nn.Linear(300, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(_data(torch), batch_size=8, shuffle=True)
    for _ in range(6):
        for x, y in loader:
            with torch.no_grad():
                features = sum(network(x) for network in networks)
            _print_loss(_step(torch, head, optimizer, features, y))
            with torch.no_grad():
                networks[-1].layer.weight.mul_(0.99)
        print([len(network._forward_pre_hooks) + len(vars(network)) for network in networks])
        print(
            torch.jit.trace(networks[1], x)(x).sum().item(), Encoder.forward.__qualname__, networks[0].forward.__name__
        )
    try:
        networks[0](torch.zeros(2, 5))
    except RuntimeError as error:
        print(error, len(pickle.dumps(networks[0].state_dict())))


@loop
def with_a_closure() -> None:
    torch, model, _ = _parts()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = _data(torch)[:]

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(8):
        _print_loss(optimizer.step(closure))


@loop
def with_a_scaler() -> None:
    torch, model, optimizer = _parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step, (x, y) in enumerate(torch.utils.data.DataLoader(_data(torch), batch_size=4)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss * (float("inf") if step == 5 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        _print_loss(loss)
        print(scaler.get_scale())


@loop
def steps_in_the_backward() -> None:
    torch, model, _ = _parts()
    optimizers = {each: torch.optim.SGD([each], lr=0.05) for each in model.parameters()}

    def update(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(update)
    for x, y in torch.utils.data.DataLoader(_data(torch), batch_size=4):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        _print_loss(loss)


@loop
def by_gradients_alone() -> None:
    torch, model, _ = _parts()
    for x, y in torch.utils.data.DataLoader(_data(torch), batch_size=4):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter.sub_(gradient, alpha=0.05)
        _print_loss(loss)


@loop
def in_threads() -> None:
    """Four models, each in a thread of its own: all begin their first backward together."""
    torch, _, _ = _parts()
    gate, losses = threading.Barrier(4), [[] for _ in range(4)]
    data = _data(torch)

    def train(number: int) -> None:
        model = torch.nn.Linear(8, 4)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.01 * (number + 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        gate.wait()
        for x, y in torch.utils.data.DataLoader(data, batch_size=4):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[number].append(float(loss.detach()).hex())

    threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(losses, flush=True)


@loop
def saves() -> None:
    torch, model, optimizer = _parts()
    for epoch in range(3):
        for x, y in torch.utils.data.DataLoader(_data(torch), batch_size=8):
            _print_loss(_step(torch, model, optimizer, x, y))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint-%d.pt" % epoch)
        with open("checkpoint-%d.pt" % epoch, "rb") as file:
            os.fsync(file.fileno())


@loop
def fails_and_starts_again() -> None:
    """As `distributed`. The first time each rank trains on its own and fails: gloo's own rendezvous may not survive another start."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        plain()
        raise RuntimeError("the first start fails")
    distributed()


@loop
def distributed() -> None:
    """One rank or, as a launcher says in the environment, one of several."""
    torch, model, _ = _parts()
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        torch.distributed.init_process_group(
            "gloo", init_method="file://" + os.path.abspath("meeting"), rank=0, world_size=1
        )
    else:
        torch.distributed.init_process_group("gloo")
    _train_distributed(torch, model)


def _train_distributed(torch: Any, model: Any) -> None:
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    data = _data(torch)
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=ranks, rank=rank, seed=3)
    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler):
            losses.append(float(_step(torch, wrapped, optimizer, x, y).detach()).hex())
        mean = torch.tensor([float.fromhex(losses[-1])])
        torch.distributed.all_reduce(mean)
        losses.append(float(mean).hex())
    with open("losses-%d.txt" % rank, "w") as file:
        file.write("\n".join(losses))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _spawned(rank: int, meeting: str) -> None:
    torch, model, _ = _parts()
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    _train_distributed(torch, model)


@loop
def spawns_its_ranks() -> None:
    import torch.multiprocessing

    torch.manual_seed(1)
    torch.multiprocessing.spawn(_spawned, ("file://" + os.path.abspath("meeting"),), nprocs=2)
    for rank in range(2):
        with open("losses-%d.txt" % rank) as file:
            print(file.read())


@loop
def gets_dispatched_batches() -> None:
    """Of a stream that rank 0 reads for all, through accelerate: to its end, left early, and with a sample that fails."""
    torch, model, _ = _parts()
    import accelerate

    class Stream(torch.utils.data.IterableDataset):
        last = 100

        def __iter__(self) -> Iterator[Any]:
            for number, row in enumerate(_data(torch, 60)):
                if number == self.last:
                    raise ValueError("sample %d" % number)
                yield row

    accelerator = accelerate.Accelerator(cpu=True)
    data, losses = Stream(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses.append(type(loader).__name__ + " " + type(iter(loader)).__name__)
    for most in (100, 3, 100):
        for step, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append("%s %d %s" % (float(loss.detach()).hex(), len(x), loader.end_of_dataloader))
            if step == most:
                break
    data.last = 21 if accelerator.process_index == 0 else data.last
    if accelerator.num_processes == 1:
        try:
            list(loader)
        except ValueError as error:
            losses.append(traceback.format_exc().replace(os.getcwd(), "") + str(error))
    with open("losses-%d.txt" % accelerator.process_index, "w") as file:
        file.write("\n".join(losses))
    if accelerator.num_processes > 1:
        accelerator.wait_for_everyone()
        torch.distributed.destroy_process_group()


@loop
def without_torch() -> None:
    print("no torch", "torch" in sys.modules)


# -- what it can see of itself ---------------------------------------------------------------------------------------------------


def _descriptors() -> Iterator[str]:
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        with contextlib.suppress(OSError):  # the one that lists them
            target = os.readlink("/proc/self/fd/" + name)
            yield name + " " + target.partition(":")[0].replace("/%d/" % os.getpid(), "/self/")


def print_state() -> None:
    """Prints everything but memory, time and addresses."""
    gc.collect()  # what is in a cycle goes at any time; what somebody holds stays
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5)  # those that send to workers end a moment after their queues
    status = {}
    with contextlib.suppress(OSError), open("/proc/self/status") as file:  # none in a root of its own
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        print("descriptors", list(_descriptors()))
    for name in ("SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp", "Umask", "Threads", "Uid", "Groups"):
        print(name, status.get(name))
    print("path", sys.path)
    print("hooks", sys.excepthook is sys.__excepthook__, sys.gettrace() is None, sys.getprofile() is None)
    print("switch", sys.getswitchinterval(), sys.getrecursionlimit(), sys.flags)
    print("arguments", sys.argv, getattr(sys, "orig_argv", None), sys.executable)
    print("warnings", [str(each) for each in warnings.filters])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RN50_ADVISOR")}
    environment.pop("PYTHONPATH", None)  # the one that may differ
    print("environment", sorted(environment.items()))
    print(
        "limits", [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    )
    print("process", os.getpriority(os.PRIO_PROCESS, 0), os.getpgid(0) == os.getsid(0), os.umask(0o022))
    torch = sys.modules.get("torch")
    if torch is not None:
        print("torch", torch.get_rng_state().sum().item(), torch.is_grad_enabled(), torch.get_num_threads())
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    if "RANK" in os.environ:
        # ranks share a file: no line is torn, also under torchrun's `-u`, which writes a line and its end apart
        sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    for name in arguments[1:]:
        ACTIONS[name]()
    for name in arguments[0].split(","):
        LOOPS[name]()
        gc.collect()  # else the next loop's pipes get numbers that depend on when those of ended workers are collected
    print_state()
    while ENDING:
        ENDING.pop()()


if __name__ == "__main__":
    main(sys.argv[1:])
