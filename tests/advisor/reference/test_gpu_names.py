"""GPUs by the names that their driver gives them."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.reference.gpu_names import gpu_model


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Tesla V100-SXM2-32GB", "V100-SXM"),
        ("Tesla V100-SXM3-32GB-H", "V100-SXM"),
        ("Tesla V100-DGXS-32GB", "V100-SXM"),
        ("Tesla V100-PCIE-16GB", "V100-PCIe"),
        ("Tesla P100-SXM2-16GB", "P100-SXM"),
        ("Tesla P100-PCIE-16GB", "P100-PCIe"),
        ("NVIDIA A800-SXM4-80GB", "A800-SXM"),
        ("NVIDIA A800 80GB PCIe", "A800-PCIe"),
        ("NVIDIA A800 40GB Active", "A800-PCIe"),
        ("NVIDIA H800", "H800-SXM"),
        ("NVIDIA H800 PCIe", "H800-PCIe"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L20", "L20"),
        ("NVIDIA RTX A5000", "A5000"),
        ("Quadro RTX 8000", "RTX8000"),
        ("NVIDIA GeForce RTX 4090 D", "RTX4090D"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX-PRO-6000"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM"),
        ("A100-SXM4-40GB", "A100-SXM"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("Tesla T4", "T4"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX2080Ti"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        # another chip than the one its name begins with
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090 D", None),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None),
        ("Tesla V100S-PCIE-32GB", None),
        ("Tesla V100-FHHL-16GB", None),
        ("NVIDIA L2", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("", None),
    ],
)
def test_a_device_is_known_by_its_whole_name_only(name: str, model: str | None) -> None:
    assert gpu_model(name) == model
