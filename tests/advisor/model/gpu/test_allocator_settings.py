"""Settings of torch's allocator that are left to set."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.gpu.allocator_settings import growing_segments


@pytest.mark.parametrize(
    ("variables", "setting"),
    [
        ({}, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, ""),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:128, expandable_segments: True"}, ""),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, ""),
        (
            {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2],max_split_size_mb:128"},
            "PYTORCH_ALLOC_CONF=roundup_power2_divisions:[256:1,512:2],max_split_size_mb:128,expandable_segments:True",
        ),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False,max_split_size_mb:128"},
            "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True",
        ),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:False"},
            "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True",
        ),
        ({"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True"}, ""),
    ],
)
def test_segments_that_grow_are_advised_beside_what_is_set(variables: dict[str, str], setting: str) -> None:
    assert str(growing_segments({"variables": variables}) or "") == setting
