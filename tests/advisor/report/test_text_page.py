"""The report on one page of a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.report import text_page

PAGE = """\
rn50-advisor report  resnet50-2ranks
  command  torchrun --nproc_per_node=2 samples/train.py --batch-size 32

VERDICT
  ▲ Bottleneck: Loading happens in the training process (DAT003)
  70 % of every step is spent decoding images in the training process itself, on
  both ranks.
  efficiency  24 of 100: 141 ms of a 587 ms step are useful compute

SPEED
  109 samples/s · 587 ms per step · 430 steps · 2 ranks · exit code 0 after 4m
  12s
  time lost   2m 30s of 4m 12s to DAT003 (predicted)

STEP TIME BREAKDOWN  587 ms on the critical path
  waiting for input           412 ms    70 %  █████████████████
  forward                    58.0 ms   9.9 %  ██
  backward                   71.0 ms    12 %  ███
  communication (exposed)    9.00 ms   1.5 %  ▏
  optimizer                  12.0 ms   2.0 %  ▏
  checkpoints                19.0 ms   3.2 %  █
  between steps              2.00 ms   0.3 %  ▏
  unattributed               4.00 ms   0.7 %  ▏

FIXES
  1. DAT003  Loading happens in the training process
     fix   load in worker processes: num_workers=6
     at    samples/train.py:142
     type  --workers 6
     gain  about 2.5× faster (2.1–2.9×), saves 310–380 ms per step
           saves 2m 13s – 2m 43s of this run
  2. LOP001  Checkpoints stop the training
     fix   save every 500 steps, or in the background
     at    samples/train.py:231
     gain  1.02–1.03× faster, saves 10–19 ms per step
           saves 4.30–8.17 s of this run

  more     report --full: evidence, limits, machine; report --open: charts"""


def test_verdict_speed_account_and_fixes_are_on_one_page() -> None:
    report = samples.bottleneck()
    fix = replace(samples.LOADER.fixes[0], typed=("--workers 6",))
    first, *others = report.findings
    assert text_page.render(replace(report, findings=(replace(first, fixes=(fix,)), *others))) == PAGE


@pytest.mark.parametrize("name", samples.ALL)
def test_it_has_at_most_40_lines_of_80_columns(name: str) -> None:
    lines = text_page.render(samples.ALL[name]()).split("\n")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_fixes_that_do_not_fit_are_counted() -> None:
    findings = tuple(replace(samples.LOADER, rule=f"XXX{n:03d}", explained_by=None) for n in range(20))
    shown = text_page.render(replace(samples.bottleneck(), findings=findings))
    hidden = re.search(r"more findings with a fix: (\d+)", shown)
    assert hidden and len(re.findall(r"\d\. XXX", shown)) + int(hidden[1]) == 20
    assert len(shown.split("\n")) <= 40


def test_what_ended_the_job_comes_before_what_slows_it() -> None:
    report = samples.hang()
    shown = text_page.render(replace(report, findings=(samples.CHECKPOINT, *report.findings)))
    assert re.search(r"1\. RUN001 .*2\. LOP001", shown, re.S)


def test_many_phases_are_added_up() -> None:
    report = samples.bottleneck()
    account = {**report.budget.critical, "gap.evaluation": 0.003, "input_wait.epoch_start": 0.001}
    shown = text_page.render(replace(report, budget=replace(report.budget, critical=account)))
    assert re.search(r"3 smaller phases +6\.00 ms", shown)


def test_without_findings_and_steps_the_page_says_so() -> None:
    shown = text_page.render(samples.inconclusive())
    assert "no findings" in shown and "WHERE" not in shown and "LINES OF" not in shown
    assert "efficiency  not known: 0 steady steps observed" in shown


def test_without_a_fix_the_page_says_which_lines_take_most_of_the_step() -> None:
    lines = {f"model.py:{n}": f"{n} % of the step" for n in (9, 8, 7, 6)}
    healthy = replace(samples.healthy(), findings=(), facts={"lines": lines})
    shown = text_page.render(healthy)
    assert re.search(r"no findings\n\nLINES OF THE JOB'S CODE.*\n +model\.py:9  9 %.*\n.*\n.*model\.py:7", shown)
    assert "model.py:6" not in shown
    assert "LINES OF" not in text_page.render(replace(samples.bottleneck(), facts={"lines": lines}))
