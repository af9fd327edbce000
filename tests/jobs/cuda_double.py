"""A plain loop of short steps on a CPU whose recorder takes it to be on a GPU: a double of `torch.cuda` stands in for the stream.

cuda_double.py STEPS: to its events each step is told to take 1 ms and the recorder a twentieth of it, on any machine.
"""

import gc
import sys
from time import perf_counter_ns

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(sys.argv[1])
STEP_NS, RECORDER_NS = 1_000_000, 50_000


class Event:
    """Passes as soon as it is recorded."""

    def __init__(self, enable_timing):
        self.at_ns = 0

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


def gpu_times(recorder):
    class PacedTimes(sys.modules[type(recorder).__module__].GpuTimes):
        def turn(self, step, now, self_ns):
            return super().turn(step, step * STEP_NS, step * RECORDER_NS)

    return PacedTimes(Cuda, 0)


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = DataLoader(TensorDataset(torch.randn(4 * STEPS, 64)), batch_size=4)
recorder = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Recorder")
for (x,) in data:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if recorder.gpu is None:
        recorder.gpu = gpu_times(recorder)
