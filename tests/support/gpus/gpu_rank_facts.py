"""Facts of a rank that trains ResNet50 on an A100, as the recorder writes them. Not a test."""

from __future__ import annotations

RESNET50 = {"class": "SGD", "parameters": 161, "elements": 25_557_032}


A100 = {"name": "NVIDIA A100-SXM4-80GB", "capability": [8, 0], "tf32_cudnn": True}


PICTURES = {"shape": [256, 3, 224, 224], "device": "cpu", "dtype": "float32", "bytes": 1, "from_bytes": True}


CONV = {"shape": [256, 3, 224, 224], "weight": "float32", "autocast": "bfloat16"}


FACTS = {
    "rank": 0,
    "cuda": A100,
    "optimizer": RESNET50,
    "pictures": PICTURES,
    "conv": CONV,
}
