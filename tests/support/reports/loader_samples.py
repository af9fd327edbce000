"""Loaders as ranks describe them, and reports with them. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import report_samples as samples
from rn50_advisor.advisor.model.report import Report

DIFF = "--- a/train.py\n+++ b/train.py\n" + (
    "@@ -1,5 +1,5 @@\n def load():\n \treturn DataLoader(\n \t\tdata,\n-\t\tnum_workers=2,\n+\t\tnum_workers=6,\n \t)\n"
)
TRAINING: dict[str, Any] = {
    "id": 0,
    "training": True,
    "file": "/job/train.py",
    "line": 57,
    "class": "DataLoader",
    "batch_size": 64,
    "num_workers": 4,
    "prefetch_factor": 2,
    "pin_memory": True,
    "persistent_workers": False,
    "sampler": "DistributedSampler",
    "shuffle": True,
    "collate": "default_collate",
    "context": None,
    "batch_bytes": 38_535_168,
    "dataset": {
        "class": "torch.utils.data.dataset.Subset",
        "length": 500,
        "root": "/data",
        "inner": {
            "class": "torchvision.datasets.folder.ImageFolder",
            "length": 1_281_167,
            "transforms": ["RandomResizedCrop", "Flip", "ToTensor", "Normalize", "Own"],
            "transform_settings": ["RandomResizedCrop(size=(224, 224))", None, None, None, None],
        },
    },
}
TEST = {**TRAINING, "id": 1, "training": False, "line": 63, "num_workers": 0, "shuffle": False, "batch_size": 1}


def report(diff: str = DIFF, loaders: Any = (TRAINING, TEST), ranks: int = 2) -> Report:
    finding = samples.LOADER
    fix = replace(finding.fixes[0], diff=diff)
    facts = {str(rank): {"loaders": [dict(known) for known in loaders], "torch": "2.8"} for rank in range(ranks)}
    return replace(samples.bottleneck(), findings=(replace(finding, fixes=(fix,)),), facts=facts)
