"""Expected values of a GPU: from published results of its model, its vendor, its link; and the judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probe_trees import write_tree
from rn50_advisor.advisor.triage.gpu.gpu_bands import expected, host_generation
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice

H100: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "uuid": "", "index": 0}


def gpu(name: str, *, gpu_max: int | None = None, slot: int | None = None) -> GpuDevice:
    return GpuDevice(0, name, "", "", 40 << 30, pcie_gen_gpu_max=gpu_max, pcie_gen_max=slot)


def test_whoever_says_what_to_expect_is_named_with_an_address() -> None:
    names = ("hbm_gb_per_s", "h2d_pinned_gb_per_s", "matmul_bf16_tflop_per_s", "sustained_tflop_per_s")
    for name in names:
        of = expected(name, H100["name"])
        assert of.band.lo is not None and "https://github.com/" in of.band.source and of.bad_share == 1.0
    assert "NVIDIA H100 data sheet" in expected("matmul_tf32_tflop_per_s", H100["name"]).band.source


@pytest.mark.parametrize(
    ("of", "lo", "bad_share"),
    [
        # published of the model
        (("h2d_pinned_gb_per_s", "NVIDIA H100 80GB HBM3", None, None), 36.0, 1.0),
        (("h2d_pinned_gb_per_s", "NVIDIA H100 80GB HBM3", None, 5), 36.0, 1.0),
        # the processor has an older PCIe than the GPU: by design of the machine
        (("h2d_pinned_gb_per_s", "NVIDIA H100 80GB HBM3", None, 4), 19.5, 0.5),
        (("h2d_pinned_gb_per_s", "NVIDIA A100-SXM4-40GB", None, 3), 9.0, 0.5),
        (("h2d_pinned_gb_per_s", "Tesla V100-SXM2-16GB", None, 3), 6.75, 1.0),
        # nobody has published it: what a link of the GPU's generation carries
        (("h2d_pinned_gb_per_s", "NVIDIA L40S", gpu("NVIDIA L40S", gpu_max=4, slot=4), None), 19.5, 0.5),
        (("h2d_pinned_gb_per_s", "NVIDIA L40S", gpu("NVIDIA L40S", gpu_max=4, slot=3), None), 19.5, 0.5),
        (("h2d_pinned_gb_per_s", "NVIDIA L40S", gpu("NVIDIA L40S", gpu_max=4), 3), 9.0, 0.5),
        (("h2d_pinned_gb_per_s", "NVIDIA Unheard", gpu("NVIDIA Unheard", gpu_max=5), None), 39.0, 0.5),
        (("h2d_pinned_gb_per_s", "NVIDIA Unheard", gpu("NVIDIA Unheard"), 5), None, 0.5),
        (("h2d_pinned_gb_per_s", "NVIDIA Unheard", None, None), None, 0.5),
        # by the vendor: what nobody has measured, and precisions that are not compared elsewhere
        (("matmul_fp16_tflop_per_s", "NVIDIA L40S", None, None), 217.2, 0.5),
        (("matmul_fp32_tflop_per_s", "Tesla T4", None, None), 2.43, 0.5),
        (("matmul_tf32_tflop_per_s", "NVIDIA A40", None, None), 44.88, 0.5),
        # its power does not suffice for more, as its half precision shows: 0.75 × 65 of 121
        (("matmul_tf32_tflop_per_s", "NVIDIA L4", None, None), 24.17, 0.5),
        (("matmul_bf16_tflop_per_s", "Tesla T4", None, None), None, 0.5),  # it has no units for it
        (("sustained_tflop_per_s", "NVIDIA A40", None, None), 76.35, 0.5),
        (("matmul_fp16_tflop_per_s", "NVIDIA Unheard", None, None), None, 0.5),
        (("hbm_gb_per_s", "NVIDIA H100 NVL", None, None), None, 0.5),
    ],
)
def test_what_is_expected_of_a_number(
    of: tuple[str, str, GpuDevice | None, int | None], lo: float | None, bad_share: float
) -> None:
    """Name of the number and of the GPU, the driver's description of it, and the processor's generation of PCIe."""
    found = expected(*of)
    assert found.band.lo == (pytest.approx(lo, rel=1e-3) if lo is not None else None)
    assert found.bad_share == bad_share and found.band.source


@pytest.mark.parametrize(
    ("vendor", "family", "model", "generation"),
    [
        ("GenuineIntel", 6, 85, 3),  # Cascade Lake: AWS p4d, GCP a2
        ("GenuineIntel", 6, 143, 5),  # Sapphire Rapids: Azure ND H100 v5
        ("AuthenticAMD", 25, 1, 4),  # Milan: AWS p5
        ("AuthenticAMD", 23, 49, 4),  # Rome
        ("AuthenticAMD", 25, 17, 5),  # Genoa
        ("AuthenticAMD", 26, 2, None),
        ("ARM", 0, 0, None),
    ],
)
def test_the_generation_of_pcie_is_known_by_the_processor(
    tmp_path: Path, vendor: str, family: int, model: int, generation: int | None
) -> None:
    lines = (
        "processor\t: 0",
        f"vendor_id\t: {vendor}",
        f"cpu family\t: {family}",
        f"model\t\t: {model}",
        "model name\t: x",
    )
    write_tree(tmp_path, {"proc/cpuinfo": "\n".join((*lines, "", "processor\t: 1", "model\t\t: 1", ""))})
    assert host_generation(tmp_path) == generation
    assert host_generation(tmp_path / "nowhere") is None
