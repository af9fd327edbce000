"""The GPUs of a job's host: who has ranks, how they are connected, and the number that each has on its own host."""

from __future__ import annotations

from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu, GpuMemoryTrend, GpuPath, GpuView

VIEW = GpuView(
    (Gpu(0, "A100", ranks=(0,)), Gpu(2, "A100", ranks=(1,), host="b", index_on_host=0), Gpu(3, "A100")),
    (GpuPath(0, 2, "NV12", "OK"),),
)


def test_used_are_those_with_ranks() -> None:
    assert [gpu.index for gpu in VIEW.used] == [0, 2] and GpuView().used == ()


def test_a_gpu_and_a_path_are_found_by_number_in_either_order() -> None:
    assert VIEW.get(2) is VIEW.devices[1] and VIEW.get(1) is None
    assert VIEW.path(2, 0) is VIEW.path(0, 2) is VIEW.paths[0] and VIEW.path(0, 3) is None


def test_the_number_for_a_command_is_that_of_its_own_host() -> None:
    assert [gpu.own_index for gpu in VIEW.devices] == [0, 0, 3]


def test_alike_are_those_of_one_model_in_one_machine() -> None:
    one, elsewhere, other = VIEW.devices
    assert one.is_like(other) and not one.is_like(elsewhere) and not one.is_like(Gpu(4, "H100"))


def test_growth_is_a_share_of_what_was_held_first() -> None:
    trend = GpuMemoryTrend(
        0, 0, steps=100.0, seconds=50.0, thirds_mb=(200.0, 210.0, 220.0), mb_per_step=0.5, left_mb=None
    )
    assert trend.growth == 0.25


def test_xids_of_programs_are_no_hardwares() -> None:
    assert 31 in PROGRAMS_XIDS and not PROGRAMS_XIDS & {48, 63, 74, 79, 94, 95}
