"""What the rules on computing, waiting and copying say once they fired, and what they make of each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pace_rule_cases as jobs
import pytest
from gpu_rule_cases import gpu
from pace_rule_tables import PACE_TABLES
from rule_cases import SCRIPT, loader

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.gpu.gpu_pace import Habits
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def found(rule: str, analysis: Analysis | None = None, **given: Any) -> Finding:
    result = run_rule(RULES[rule], analysis or PACE_TABLES[rule].job(**given), Config())
    assert isinstance(result, Finding), result
    return result


def told(finding: Finding) -> str:
    return " ".join(
        [finding.title, *(e.note for e in finding.evidence), *(f"{f.title} {f.change}" for f in finding.fixes)]
    )


@pytest.mark.parametrize(
    ("capability", "words", "absent"), [(8.0, "bfloat16", "GradScaler"), (7.5, "GradScaler", "bfloat16")]
)
def test_cmp001_advises_what_the_gpu_has(capability: float, words: str, absent: str) -> None:
    finding = found("CMP001", capability=capability)
    assert words in told(finding) and absent not in told(finding)


@pytest.mark.parametrize(
    ("name", "says"), [("NVIDIA GeForce GTX 1660 Ti", Clear), ("NVIDIA T1000", Clear), ("Tesla T4", Finding)]
)
def test_cmp001_asks_no_tensor_cores_of_boards_without_any(name: str, says: type) -> None:
    view = GpuView(tuple(replace(gpu(n), name=name) for n in (0, 1)))
    analysis = replace(jobs.cmp001(capability=7.5), gpu_view=view)
    assert isinstance(run_rule(RULES["CMP001"], analysis, Config()), says)


def test_cmp001_takes_one_rank_under_autocast_for_a_job_that_knows_it() -> None:
    plain = jobs.cmp001()
    values = {**plain.values, ("precision.half", "rank:1"): 1.0}
    assert run_rule(RULES["CMP001"], replace(plain, values=values), Config()) == Clear("CMP001")


def test_cmp001_promises_only_what_eligible_kernels_give() -> None:
    whole, half = found("CMP001").saving, found("CMP001", eligible=0.5).saving
    assert whole is not None and half is not None
    assert half.speedup[1] < whole.speedup[1] and half.speedup[0] < whole.speedup[0]


def test_cmp001_explains_the_switch_of_tf32() -> None:
    plain = jobs.cmp009(half=0.0, tf32=0.0)
    findings = {f.rule: f.explained_by for f in judge(plain, all_rules(), Config()).findings}
    assert findings == {"CMP001": None, "CMP009": "CMP001"}


def test_cmp002_names_the_shape_and_the_line_of_the_copy() -> None:
    finding = found("CMP002")
    assert (
        "[128, 3, 224, 224]" in told(finding)
        and finding.fixes[0].where is not None
        and finding.fixes[0].where.line == 61
    )


def test_cmp003_does_not_guess_how_long_the_gpu_idled() -> None:
    blind = jobs.cmp003(resident=None)
    assert run_rule(RULES["CMP003"], blind, Config()) == NotMeasured("CMP003", ("gpu.util_share",))
    assert run_rule(RULES["CMP003"], jobs.cmp003(paced_s=0.01, resident=None), Config()) == Clear("CMP003")
    assert found("CMP003", deep=0.3, resident=None).confidence > found("CMP003").confidence


def test_cmp003_advises_what_is_not_done_yet() -> None:
    assert "torch.compile" in told(found("CMP003")) and "larger batch" in told(found("CMP003"))
    done = told(found("CMP003", told={"compiled_frames": 3, "optimizer": {"fused": True}}))
    assert "torch.compile" not in done and "fused optimizer" not in done


def test_cmp003_of_a_host_that_is_held_back_is_no_root() -> None:
    slow = jobs.cmp003()
    held = {
        (name, f"rank:{n}"): value
        for n in (0, 1)
        for name, value in (("quota.cores", 0.5), ("quota.throttled_share", 0.8), ("quota.throttled_s_per_s", 0.6))
    }
    judgement = judge(replace(slow, values={**slow.values, **held}), all_rules(), Config())
    causes = {finding.rule: finding.explained_by for finding in judgement.findings}
    assert causes["CPU001"] is None and causes["CMP003"] == "CPU001"


def test_cmp004_names_the_costliest_places_first_and_how_to_spare_them() -> None:
    finding = found("CMP004")
    assert ".item() at train.py:88 (400.0 ms)" in told(finding)
    assert finding.fixes[0].where is not None and finding.fixes[0].where.line == 88


def test_cmp004_judges_nothing_by_two_looks() -> None:
    assert run_rule(RULES["CMP004"], jobs.cmp004(looks=2), Config()) == NotMeasured("CMP004", ("sync.looks",))
    assert isinstance(run_rule(RULES["CMP004"], jobs.cmp004(looks=3), Config()), Finding)


def stepped_by(name: str, torch: str = "2.8.0", **more: Any) -> dict[str, Any]:
    return {"torch": f"{torch}+cu128", "optimizer": {"class": name, **more}}


@pytest.mark.parametrize(
    ("name", "torch", "offered"),
    [
        ("Adam", "2.0.1", True),
        ("AdamW", "1.13.1", False),
        ("SGD", "2.3.0", True),
        ("SGD", "2.2.2", False),
        ("Adagrad", "2.11.0", False),  # on CUDA it raises
        ("Adagrad", "2.12.0", True),
        ("RMSprop", "2.12.0", False),
        ("AdamW", "", False),
    ],
)
def test_a_fused_optimizer_is_offered_where_its_torch_has_it(name: str, torch: str, offered: bool) -> None:
    given = stepped_by(name, torch)
    launches = told(found("CMP003", told=given))
    switches = told(found("CMP009", optimizer=0.1, told=given))
    asked = Habits(jobs.waits(through="torch.amp.grad_scaler"))
    scaler = told(found("CMP004", told=given, habits=asked))
    fused = f"{name}(..., fused=True)"
    assert [fused in words for words in (launches, switches, scaler)] == [offered, offered, offered and name != "SGD"]


@pytest.mark.parametrize(("momentum", "offered"), [(None, False), (1, False), (0, True)])
def test_momentum_beside_a_gradient_scaler_is_not_fused(momentum: int | None, offered: bool) -> None:
    asked = Habits(jobs.waits(through="torch.amp.grad_scaler"))
    given = stepped_by("SGD", momentum=momentum)
    assert ("fused=True" in told(found("CMP009", optimizer=0.1, told=given, habits=asked))) is offered
    assert ("fused=True" in told(found("CMP003", told=given, habits=asked))) is offered


@pytest.mark.parametrize(
    ("name", "capability", "words"),
    [
        ("AdamW", 7.5, ["AdamW(..., fused=True)"]),
        ("AdamW", 8.0, ["AdamW(..., fused=True)", "bfloat16"]),
        ("LBFGS", 8.0, ["bfloat16"]),
        ("LBFGS", 7.5, ["none for this optimizer"]),
    ],
)
def test_cmp004_spares_the_gradient_scalers_question_as_the_job_can(
    name: str, capability: float, words: list[str]
) -> None:
    asked = Habits(jobs.waits(through="torch.amp.grad_scaler", line=91, phase="optimizer"))
    made = jobs.cmp004(told=stepped_by(name), habits=asked)
    seen = replace(made, values={**made.values, ("precision.capability", "rank:0"): capability})
    change = found("CMP004", seen).fixes[0].change
    assert [
        word for word in ("AdamW(..., fused=True)", "bfloat16", "none for this optimizer") if word in change
    ] == words


@pytest.mark.parametrize(
    ("call", "words"),
    [("__bool__", "comparison"), ("__repr__", "printing a tensor"), ("synchronize", "events tell times")],
)
def test_cmp004_calls_each_wait_by_its_name(call: str, words: str) -> None:
    assert words in told(found("CMP004", habits=Habits(jobs.waits(call=call))))


def test_cmp004_is_capped_by_what_the_host_was_held() -> None:
    saving = found("CMP004", gap=0.3, blocked=0.1).saving
    assert saving is not None and saving.speedup[1] == pytest.approx(1 / 0.9)


@pytest.mark.parametrize("deep", [None, 0.5])
def test_cmp004_leaves_what_the_loop_does_after_a_short_wait_to_the_loop(deep: float | None) -> None:
    line = HotLine(SCRIPT, 95, "train", "sleep", 100, 0.5, False)
    busy = jobs.cmp004(gap=0.5, blocked=0.01, deep=deep, held=deep and 0.01, hot_lines=(line,))
    assert [f.rule for f in judge(busy, all_rules(), Config()).findings if f.explained_by is None] == ["LOP004"]


def test_cmp005_asks_for_as_much_as_fits() -> None:
    assert found("CMP005").fixes[0].change == "DataLoader(..., batch_size=16)"
    assert found("CMP005", peak=0.2).fixes[0].change == "DataLoader(..., batch_size=32)"
    assert "4 times" in found("CMP005", peak=0.2).fixes[0].title


@pytest.mark.parametrize("rule", ["CMP005", "CMP006"])
def test_a_batch_is_judged_by_a_benchmark_in_as_many_words(rule: str) -> None:
    own = jobs.cmp005() if rule == "CMP005" else jobs.cmp006()
    swept = replace(own, values={**own.values, ("batch.benchmarked", "rank:0"): 1.0})
    for given, told in ((own, False), (swept, True)):
        assert ("a benchmark of this machine" in found(rule, given).evidence[0].note) is told


def test_cmp005_speaks_of_the_loaders_batch_where_a_step_has_several() -> None:
    small = jobs.cmp005()
    several = {**small.values, **{("step.batches", f"rank:{n}"): 4.0 for n in (0, 1)}}
    assert found("CMP005", replace(small, values=several)).fixes[0].change == "DataLoader(..., batch_size=4)"


def test_cmp005_explains_a_gpu_that_waits_for_launches() -> None:
    small, waiting = jobs.cmp005(), jobs.cmp003(paced_s=0.3)
    both = replace(waiting, values={**waiting.values, **small.values}, loaders=small.loaders)
    causes = {f.rule: f.explained_by for f in judge(both, all_rules(), Config()).findings}
    assert causes == {"CMP005": None, "CMP003": "CMP005"}


def test_cmp008_shows_both_tiers_and_is_never_the_cause_of_another() -> None:
    finding = found("CMP008")
    assert {e.metric for e in finding.evidence} >= {"reference.images_per_s", "reference.tuned_images_per_s"}
    slow = jobs.cmp008()
    plain = {key: value for key, value in jobs.cmp001().values.items() if key[0].startswith("precision.")}
    causes = {
        f.rule: f.explained_by
        for f in judge(replace(slow, values={**slow.values, **plain}), all_rules(), Config()).findings
    }
    assert causes["CMP008"] == "CMP001" and causes["CMP001"] is None


def test_cmp009_lists_all_that_is_off() -> None:
    finding = found("CMP009", fused=False, optimizer=0.1)
    assert finding.title == "Switched off: cudnn.benchmark, fused optimizer" and len(finding.fixes) == 2


def test_h2d001_says_so_where_the_loader_pins_in_vain() -> None:
    pins = tuple(replace(loader(n, 4), pin_memory=True) for n in (0, 1))
    finding = found("H2D001", loaders=pins)
    assert "pin_memory()" in finding.fixes[0].change
    assert found("H2D001").fixes[0].change == "DataLoader(..., pin_memory=True)"
    assert [fix.where.line for fix in found("H2D001").fixes if fix.where] == [42, 61]


def test_h2d001_counts_no_more_than_links_can_lack() -> None:
    waited = found("H2D001", share=0.5, slower=50.0)  # mostly the wait for what was queued before
    copy = next(e for e in waited.evidence if e.metric == "copy time")
    assert copy.value == pytest.approx(5 * 0.5 / 50)


def test_h2d002_names_the_call() -> None:
    finding = found("H2D002")
    assert finding.fixes[0].change == ".to(device, non_blocking=True)" and finding.fixes[0].where is not None
    assert finding.fixes[0].where.file == SCRIPT


def test_com005_compares_nothing_with_gpus_that_nobody_saw() -> None:
    seen = jobs.com005()
    blind = replace(seen, values={key: v for key, v in seen.values.items() if key[0] != "gpu.mem_used_mb"})
    assert run_rule(RULES["COM005"], blind, Config()) == NotMeasured("COM005", ("gpu.mem_used_mb",))


def test_com005_takes_no_gpu_for_the_first_of_which_nobody_knows_it() -> None:
    told = jobs.com005()
    view = replace(told.gpu_view, devices=tuple(replace(gpu, first_of=()) for gpu in told.gpu_view.devices))
    unknown = run_rule(RULES["COM005"], replace(told, gpu_view=view), Config())
    assert unknown == NotMeasured("COM005", ("gpu.mem_used_mb",))


def test_com005_gives_the_way_to_one_process_a_gpu() -> None:
    finding = found("COM005")
    assert "torchrun --nproc_per_node=4" in told(finding) and finding.scope.gpus == (0, 1, 2, 3)
    assert "1.20 times the mean of the others" in told(finding)


def test_cmp005_pays_the_exchange_of_gradients_once_for_the_larger_batch() -> None:
    alone, together = jobs.cmp005(), jobs.cmp005()
    assert alone.model is not None
    wired = replace(together, model=replace(alone.model, wire_s=0.2, step_s=1.2))
    best = found("CMP005", wired).saving
    plain = found("CMP005", alone).saving
    assert best is not None and plain is not None
    # twice the batch: half of the exchange for as many samples
    assert best.seconds_per_step[1] == pytest.approx(plain.seconds_per_step[1] + 0.1)


@pytest.mark.parametrize(("share", "cause"), [(0.05, "CMP004"), (0.3, None)])
def test_idle_time_between_steps_is_promised_once(share: float, cause: str | None) -> None:
    held, waiting = jobs.h2d002(share=share, gap=0.2), jobs.cmp004(gap=0.2)
    both = replace(held, values={**held.values, **waiting.values}, habits=waiting.habits)
    causes = {f.rule: f.explained_by for f in judge(both, all_rules(), Config()).findings}
    assert (causes["CMP004"], causes["H2D002"]) == (None, cause)


@pytest.mark.parametrize("rule", ["H2D001", "H2D002"])
def test_a_buffer_that_is_filled_keeps_its_call(rule: str) -> None:
    made = jobs.h2d001() if rule == "H2D001" else jobs.h2d002()
    filled = Habits((), tuple(replace(copy, call="copy_") for copy in made.habits.copies))
    assert ".copy_(batch, non_blocking=True)" in told(found(rule, replace(made, habits=filled)))


@pytest.mark.parametrize(
    ("given", "advised", "speedup"),
    [
        pytest.param({"rates": {8: 100, 16: 160, 32: 130}}, 16, 1.6, id="the rate falls at four times"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 240}}, 32, 2.4, id="it goes on rising"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 168}}, 16, 1.6, id="the smallest near the best"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 169}}, 32, 1.69, id="just beyond it"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 240}, "oom_at": 32}, 16, 1.6, id="four times did not fit"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 240}, "peak": 0.3}, 16, 1.6, id="nor in this job's memory"),
        pytest.param({"rates": {4: 50, 12: 150, 24: 250}}, 24, 2.5, id="between two sizes"),
    ],
)
def test_cmp005_advises_what_a_sweep_measured(given: dict[str, Any], advised: int, speedup: float) -> None:
    finding = found("CMP005", **{"peak": 0.2, **given})
    assert finding.fixes[0].change == f"DataLoader(..., batch_size={advised})"
    assert finding.saving is not None and finding.saving.speedup[1] == pytest.approx(speedup)
    note = finding.evidence[0].note
    assert f"batches of {advised} as with 8 (a benchmark of this machine" in note and "after 100" in note


def test_cmp005_takes_the_line_where_no_rank_was_swept() -> None:
    swept = jobs.cmp005(peak=0.2, rates={8: 100, 16: 160, 32: 130})
    one = replace(swept, batch_curves={0: swept.batch_curves[0]})
    assert found("CMP005", one).evidence[0].metric == "batch.fixed_share"


@pytest.mark.parametrize(
    ("rates", "advised", "words"),
    [
        ({2: 100, 4: 118, 8: 120}, 4, "2 % more samples/s is all that doubling the batch to 8 gave"),
        ({2: 117, 4: 118, 8: 120}, 2, "2 % more samples/s"),
        ({2: 100, 4: 125, 8: 120}, 4, "4 % fewer samples/s are what doubling the batch to 8 gave"),
        ({3: 118, 8: 120}, 3, "more samples/s"),
    ],
)
def test_cmp006_advises_the_smallest_that_is_as_fast(rates: dict[float, float], advised: int, words: str) -> None:
    finding = found("CMP006", rates=rates, fixed=0.5)
    assert finding.fixes[0].change == f"DataLoader(..., batch_size={advised})"
    assert words in finding.evidence[0].note and "a benchmark of this machine" in finding.evidence[0].note


def test_com005_says_why_there_is_no_diff() -> None:
    fix = found("COM005").fixes[0]
    assert "no diff" in fix.title and not fix.diff
    assert "batch_size=batch // 4" in fix.change, "each process makes its part of the batch"


@pytest.mark.parametrize(
    ("build", "fix"),
    [("2.8.0+cpu", "install torch with CUDA: 2.8.0+cpu has none"), ("2.8.0", "move model and batches")],
)
def test_cmp011_says_what_keeps_the_job_from_the_gpus_and_comes_first(build: str, fix: str) -> None:
    judgement = judge(jobs.cmp011(computing=0.5, gap=0.5, build=build), all_rules(), Config())
    first, second = judgement.findings
    assert (judgement.verdict.rule, first.rule, second.rule) == ("CMP011", "CMP011", "LOP004")
    assert first.title.endswith("while 2 GPUs idle") and first.fixes[0].title.startswith(fix)
