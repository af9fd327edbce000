"""The tensors of a batch are counted and weighed, however it nests them."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")


from rn50_advisor.probes.rank.facts.batch_contents import batch_bytes, batch_tensors  # noqa: E402

pytestmark = pytest.mark.torch


def test_the_bytes_of_a_batch_are_those_of_its_tensors():
    batch = [torch.zeros(4, 3, 8, 8), {"label": torch.zeros(4, dtype=torch.int64), "names": ["a"] * 4}]
    assert batch_bytes(batch) == 4 * 3 * 8 * 8 * 4 + 4 * 8
    assert batch_bytes("text") == 0


def test_the_tensors_of_a_batch_are_counted_as_deep_as_detection_nests_them():
    targets = [{"boxes": torch.zeros(3, 4), "labels": torch.zeros(3), "file": "a.jpg"} for _ in range(5)]
    assert batch_tensors((torch.zeros(5, 3, 8, 8), targets)) == 11
    assert batch_tensors(torch.zeros(3)) == 1 and batch_tensors([1, "text", None]) == 0


def test_a_tensor_without_byte_count_counts_none():
    sparse = torch.eye(3).to_sparse()
    assert batch_bytes([sparse, torch.zeros(4)]) == 16
