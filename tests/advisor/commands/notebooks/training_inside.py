"""A script that watches itself, for `test_watching.py`. Prints one JSON object."""

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import rn50_advisor

torch.set_num_threads(1)


class Samples(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        x = torch.randn(64, generator=torch.Generator().manual_seed(index))
        return x, (x.sum() > 0).long()


def made():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(256, 2)
    )
    loader = DataLoader(Samples(), batch_size=8, shuffle=True, num_workers=1)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), loader


def train(model, optimizer, loader, epochs=2):
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def state():
    """What a recording must leave as it was."""
    random = torch.random.get_rng_state().tolist()
    finders = [type(finder).__name__ for finder in sys.meta_path if type(finder).__name__ != "_After"]
    return [dict(os.environ), len(gc.callbacks), threading.active_count(), finders, sys.path, random]


def settle():
    """Threads of a loader whose epoch has ended need a moment to end, too."""
    deadline = time.monotonic() + 20
    while threading.active_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.01)


found = {}
whole = [train(*made())]
job = made()
settle()
before = state()
with rn50_advisor.watch(name="first") as watched:
    recorded = state()
    environment = os.environ["RN50_ADVISOR_DIR"]
    with rn50_advisor.watch() as inner:
        whole.append(train(*job))
settle()
found["unchanged"] = state()[:5] == before[:5]
found["kept to itself"] = recorded[5] == before[5]
whole.append(train(*made()))  # with the recorder out of use
found["losses"] = len(set(map(repr, whole)))
report = watched.report
found["steps"], found["ranks"] = report.step_time.steps, report.job.ranks
found["gaps"] = [gap.metric for gap in report.gaps]
found["text"], found["html"] = str(watched), watched._repr_html_()
found["inner"] = repr(inner)
found["rings are gone"] = not Path(environment).exists()
watched.save("report.json")

try:
    with rn50_advisor.watch(name="second") as failing:
        child = os.fork()
        if child == 0:
            sys.exit()  # leaves the block, and must not end the recording
        os.waitpid(child, 0)
        train(*made(), epochs=1)
        raise ValueError("no such layer")
except ValueError as error:
    found["raised"] = [str(error), error.__traceback__.tb_next is None]
found["failed"] = [failing.report.verdict.state, failing.report.step_time.steps, str(failing)]

short = DataLoader(Samples(), batch_size=8, num_workers=1, persistent_workers=True)
with rn50_advisor.watch(
    name="short"
) as of_a_moment:  # shorter than the agent takes for a look, and its worker lives on
    train(*job[:2], short, epochs=1)
found["short"] = of_a_moment.report.job.ranks
del short

with rn50_advisor.watch(name="third") as orphan:
    keeper = int(Path(os.environ["RN50_ADVISOR_DIR"]).name.split("-")[2])
    os.kill(keeper, signal.SIGKILL)
    found["orphan's losses"] = train(*made()) == whole[0]
found["orphan"] = repr(orphan)
with contextlib.suppress(ChildProcessError):
    found["children"] = os.waitpid(-1, os.WNOHANG)
print(json.dumps(found))
