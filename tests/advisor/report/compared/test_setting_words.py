"""Settings in which runs differ, as people name them."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.documents.comparison import FactChange
from rn50_advisor.advisor.report.compared.setting_words import rows


@pytest.mark.parametrize(
    ("fact", "row"),
    [
        (FactChange("arguments", "--workers", "0", "4"), ("arguments", "--workers", "0", "4")),
        (FactChange("arguments", "--workers", None, "4"), ("arguments", "--workers", "not given", "4")),
        (FactChange("arguments", "--size_bytes", "1048576", ""), ("arguments", "--size_bytes", "1048576", "not given")),
        (FactChange("loader", "num_workers", "0", "4"), ("loader", "num_workers", "0", "4")),
        (FactChange("loader", "dataset.length", "400", "1281167"), ("loader", "dataset length", "400", "1,281,167")),
        (FactChange("job", "cuda.memory_bytes", "85520809984", None), ("job", "GPU memory of rank 0", "79.6 GiB", "not given")),
        (FactChange("job", "ddp.bucket_bytes", "1024, 2048", "3072"), ("job", "DDP bucket sizes", "1.00 KiB, 2.00 KiB", "3.00 KiB")),
        (FactChange("job", "cpus_allowed", "0, 1, 2, 3, 8", "0"), ("job", "allowed CPUs", "0–3, 8 (5)", "0")),
        (FactChange("machine", "numa_nodes.1", None, "4, 5"), ("machine", "NUMA node 1", "not given", "4–5 (2)")),
        (FactChange("job", "ddp.gradient_as_bucket_view", "0", "1"), ("job", "DDP gradient as bucket view", "0", "1")),
    ],
)  # fmt: skip
def test_a_setting_has_a_title_and_readable_values(fact: FactChange, row: tuple[str, ...]) -> None:
    assert list(rows([fact])) == [row]


def test_what_one_run_lacks_altogether_is_one_row() -> None:
    ddp = [FactChange("job", f"ddp.{name}", "1", None) for name in ("has_sync_bn", "device", "dtypes")]
    optimizer = [FactChange("job", f"optimizer.{name}", None, "1") for name in ("class", "groups")]
    assert [*rows([*ddp, *optimizer])] == [
        ("job", "DDP", "3 settings", "not given"),
        ("job", "optimizer class", "not given", "1"),
        ("job", "optimizer groups", "not given", "1"),
    ]
