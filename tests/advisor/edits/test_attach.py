"""Fixes of findings get their diffs from the kept sources and what the recorder said of the loader."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rn50_advisor.advisor.edits import attach
from rn50_advisor.advisor.edits.attach import with_edits
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding, Fix, Where
from rn50_advisor.advisor.model.recording import Meta, Source
from rn50_advisor.advisor.model.report import StepTime, Throughput

TEXT = "train = DataLoader(data, num_workers=2)\ntest = DataLoader(other, num_workers=0)\n"
SOURCE = Source("/job/src/train.py", "", TEXT)


def analysis(*loaders: dict[str, Any], cwd: str | None = "/job") -> Analysis:
    meta = Meta("", ("torchrun", "src/train.py"), "/elsewhere", "", 0.0, 0, 0)
    facts = {"0": {"loaders": list(loaders), "cwd": cwd, "argv": ["src/train.py"]}}
    return Analysis(meta, 1, StepTime(None, None, 0, 0), Throughput(None, None, None, 1), facts=facts)


def loader(**more: Any) -> dict[str, Any]:
    told = {"file": "src/train.py", "line": 1, "training": True, "num_workers": 2, "persistent_workers": False}
    return {**told, **more}


def edited(fix: Fix, of: Analysis, *sources: Source) -> Fix:
    finding = Finding("DAT004", "", "high", 1.0, 0.1, fixes=(fix,))
    return with_edits([finding], of, sources)[0].fixes[0]


FIX = Fix("num_workers=2 → 6", "DataLoader(..., num_workers=6)", Where("src/train.py", 1), "one line")


def test_a_fix_gets_the_diff_of_the_file_it_names():
    fix = edited(FIX, analysis(loader()), SOURCE)
    assert fix.diff is not None
    assert fix.diff.startswith("--- a/src/train.py\n+++ b/src/train.py\n")
    assert "-train = DataLoader(data, num_workers=2)\n+train = DataLoader(data, num_workers=6)\n" in fix.diff
    assert fix.change == FIX.change and fix.title == FIX.title


def test_without_a_folder_of_the_rank_the_jobs_counts():
    assert edited(FIX, analysis(loader(), cwd=None), SOURCE).diff is None
    assert edited(FIX, analysis(loader(), cwd=None), Source("/elsewhere/src/train.py", "", TEXT)).diff is not None


@pytest.mark.parametrize(
    "fix",
    [
        Fix("less", "larger machine", Where("src/train.py", 1)),
        Fix("nowhere", FIX.change, None),
        Fix("elsewhere", FIX.change, Where("other.py", 1)),
        Fix("another call", "gc.freeze(..., generation=2)", Where("src/train.py", 1)),
        Fix("what is so already", "DataLoader(..., num_workers=2)", Where("src/train.py", 1)),
    ],
    ids=lambda fix: fix.title,
)
def test_what_no_edit_serves_stays_as_it_was(fix):
    assert edited(fix, analysis(loader()), SOURCE) == fix


def test_of_several_loaders_made_at_one_line_the_one_that_trains_counts():
    of = analysis(loader(num_workers=0, training=False), loader())
    assert edited(FIX, of, SOURCE).diff is not None


def test_a_loader_made_anew_by_a_library_is_mended_where_the_user_made_it():
    data = {"class": "Pictures", "length": 10}
    anew = loader(line=9, through="accelerate.data_loader.prepare_data_loader", dataset=data, batch_size=None)
    original = loader(training=None, dataset=data, batch_size=8)
    test = loader(line=2, training=None, dataset={"class": "Other"}, batch_size=8)
    fix = edited(Fix(FIX.title, FIX.change, Where("src/train.py", 9)), analysis(test, original, anew), SOURCE)
    assert fix.where == Where("src/train.py", 1) and fix.diff is not None and "+train = " in fix.diff
    other = edited(Fix(FIX.title, FIX.change, Where("src/train.py", 9)), analysis(test, anew), SOURCE)
    assert other.where == Where("src/train.py", 9) and other.diff is None


@pytest.mark.parametrize(("there", "wanted", "edits"), [(0, 1, True), (0, 2, False), (1, 2, False), (2, 6, True)])
def test_an_iterable_data_set_must_share_out_its_samples_first(there: int, wanted: int, edits: bool):
    text = f"train = DataLoader(data, num_workers={there})\n"
    fix = Fix("", f"DataLoader(..., num_workers={wanted})", Where("src/train.py", 1))
    of = analysis(loader(num_workers=there, sampler="_InfiniteConstantSampler"))
    made = edited(fix, of, Source("/job/src/train.py", "", text))
    assert (made.diff is not None) == edits
    assert ("get_worker_info" in made.change) == (not edits)


def test_workers_of_a_loader_that_is_made_anew_cannot_persist():
    fix = Fix("", "DataLoader(..., num_workers=2, persistent_workers=True)", Where("src/train.py", 1))
    assert edited(fix, analysis(loader(made=1)), SOURCE).diff is not None
    made = edited(fix, analysis(loader(made=3)), SOURCE)
    assert made.diff is None and "make it once" in made.change


@pytest.mark.parametrize("held", [{"held": ["h5py.File"]}, {"inner": {"held": ["h5py.File"]}}])
def test_what_forked_workers_must_not_share_is_opened_in_each_first(held: dict[str, Any]):
    of = analysis(loader(num_workers=0, line=2, dataset=held))
    made = edited(Fix("", FIX.change, Where("src/train.py", 2)), of, SOURCE)
    assert made.diff is None and "holds h5py.File" in made.change
    assert edited(FIX, analysis(loader(dataset=held)), SOURCE).diff is not None, "it works with two workers already"


@pytest.mark.parametrize("told", [{"worker_init": "open_files"}, {"sampler": "_InfiniteConstantSampler"}])
def test_a_data_set_that_relies_on_workers_is_not_left_without(told: dict[str, Any]):
    fix = Fix("", "DataLoader(..., num_workers=0)", Where("src/train.py", 1))
    made = edited(fix, analysis(loader(**told)), SOURCE)
    assert made.diff is None and "get_worker_info" in made.change
    assert edited(fix, analysis(loader()), SOURCE).diff is not None


def test_words_stand_under_the_change():
    text = 'p.add_argument("--workers", type=int, default=2)\ntrain = DataLoader(data, num_workers=args.workers)\n'
    of = analysis(loader(line=2))
    fix = edited(Fix(FIX.title, FIX.change, Where("src/train.py", 2)), of, Source("/job/src/train.py", "", text))
    assert fix.change == "DataLoader(..., num_workers=6)\npass --workers 6"
    assert fix.diff is not None and "default=6" in fix.diff


def test_a_failure_inside_costs_the_diff_and_nothing_else(monkeypatch):
    def fails(*_args, **_kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr(attach, "advise", fails)
    attach._advice.cache_clear()
    assert edited(FIX, analysis(loader()), SOURCE) == FIX
    attach._advice.cache_clear()


def test_libcst_is_imported_for_a_diff_only():
    code = "import sys, rn50_advisor.advisor.verdict.diagnose; sys.exit('libcst' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
