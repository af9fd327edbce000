"""A plain loop of short steps on a CPU whose recorder sees a GPU: a double of `torch.cuda` stands in for the stream.

cuda_double.py STEPS: on any machine, a step appears to take 1 ms and the recorder a twentieth of it.
"""

import gc
import sys
from time import perf_counter_ns

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEP_NS, RECORDER_NS = 1_000_000, 50_000


class Event:
    """An event that passes as soon as it is recorded."""

    made = 0  # stays small: events are reused

    def __init__(self, enable_timing):
        self.at_ns = 0
        Event.made += 1

    def record(self, stream):
        self.at_ns = perf_counter_ns()

    def query(self):
        return True

    def elapsed_time(self, later):
        return (later.at_ns - self.at_ns) / 1e6


class Cuda:
    Event = Event

    @staticmethod
    def is_current_stream_capturing():
        return False

    @staticmethod
    def current_stream(device):
        return None

    @staticmethod
    def memory_stats(device):
        return {}


def find_recorder():
    return next(thing for thing in gc.get_objects() if type(thing).__name__ == "Recorder")


def gpu_times_of(recorder):
    """Returns the class that takes events, as imported by the recorder."""
    return sys.modules[type(recorder).__module__].GpuTimes


def paced_times(recorder):
    class PacedTimes(gpu_times_of(recorder)):
        def turn(self, step, now, self_ns):
            return super().turn(step, step * STEP_NS, step * RECORDER_NS)

    return PacedTimes(Cuda, 0)


def main():
    steps = int(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(4 * steps, 64)), batch_size=4)
    recorder = find_recorder()
    for (x,) in data:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if recorder.gpu is None:
            recorder.gpu = paced_times(recorder)


if __name__ == "__main__":
    main()
