"""Fixes of findings get their diffs from the kept sources and the recorder's facts of the loader."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.edits import attach
from rn50_advisor.advisor.edits.attach import with_edits
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding, Fix, Where
from rn50_advisor.advisor.model.input.data_loaders import NO_WORKERS
from rn50_advisor.advisor.model.job_changes import (
    Assignment,
    CallChange,
    Expression,
    GradientsKept,
    Invocation,
    NumbersKept,
    PaddedToLongest,
    Setup,
    ShrinkFirst,
)
from rn50_advisor.advisor.model.recording import Meta, Source
from rn50_advisor.advisor.model.report import StepTime, Throughput

TEXT = "train = DataLoader(data, num_workers=2)\ntest = DataLoader(other, num_workers=0)\n"
SOURCE = Source("/job/src/train.py", "", TEXT)


def analysis(*loaders: dict[str, Any], cwd: str | None = "/job") -> Analysis:
    meta = Meta("", ("torchrun", "src/train.py"), "/elsewhere", "", 0.0, 0, 0)
    facts = {"0": {"loaders": list(loaders), "cwd": cwd, "argv": ["src/train.py"]}}
    return Analysis(meta, 1, StepTime(None, None, 0, 0), Throughput(None, None, None, 1), facts=facts)


def loader(**more: Any) -> dict[str, Any]:
    facts = {"file": "src/train.py", "line": 1, "training": True, "num_workers": 2, "persistent_workers": False}
    return {**facts, **more}


def edited(fix: Fix, of: Analysis, *sources: Source) -> Fix:
    finding = Finding("DAT004", "", "high", 1.0, 0.1, fixes=(fix,))
    return with_edits([finding], of, sources)[0].fixes[0]


FIRST_LINE = Where("src/train.py", 1)


def asking(title: str, change: CallChange, where: Where | None = FIRST_LINE) -> Fix:
    return Fix.of(title, change, where, "one line")


MORE = CallChange.of("DataLoader", num_workers=6)
FIX = asking("num_workers=2 → 6", MORE)


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
        Fix("less", "larger machine", FIRST_LINE),
        asking("nowhere", MORE, None),
        asking("elsewhere", MORE, Where("other.py", 1)),
        asking("another call", CallChange.of("SGD", fused=True)),
        Fix("no call of the job's", "DataLoader(..., num_workers=6)", FIRST_LINE),
        asking("what is so already", CallChange.of("DataLoader", num_workers=2)),
    ],
    ids=lambda fix: fix.title,
)
def test_a_fix_without_an_edit_stays_unchanged(fix):
    assert edited(fix, analysis(loader()), SOURCE) == fix


def test_of_several_loaders_made_at_one_line_the_one_that_trains_counts():
    of = analysis(loader(num_workers=0, training=False), loader())
    assert edited(FIX, of, SOURCE).diff is not None


def test_a_loader_recreated_by_a_library_is_changed_where_the_user_made_it():
    data = {"class": "Pictures", "length": 10}
    anew = loader(line=9, through="accelerate.data_loader.prepare_data_loader", dataset=data, batch_size=None)
    original = loader(training=None, dataset=data, batch_size=8)
    test = loader(line=2, training=None, dataset={"class": "Other"}, batch_size=8)
    fix = edited(asking(FIX.title, MORE, Where("src/train.py", 9)), analysis(test, original, anew), SOURCE)
    assert fix.where == Where("src/train.py", 1) and fix.diff is not None and "+train = " in fix.diff
    other = edited(asking(FIX.title, MORE, Where("src/train.py", 9)), analysis(test, anew), SOURCE)
    assert other.where == Where("src/train.py", 9) and other.diff is None


@pytest.mark.parametrize(("there", "wanted", "edits"), [(0, 1, True), (0, 2, False), (1, 2, False), (2, 6, True)])
def test_an_iterable_data_set_must_share_out_its_samples_first(there: int, wanted: int, edits: bool):
    text = f"train = DataLoader(data, num_workers={there})\n"
    fix = asking("", CallChange.of("DataLoader", num_workers=wanted))
    of = analysis(loader(num_workers=there, sampler="_InfiniteConstantSampler"))
    made = edited(fix, of, Source("/job/src/train.py", "", text))
    assert (made.diff is not None) == edits
    assert ("get_worker_info" in made.change) == (not edits)


def test_workers_of_a_loader_that_is_recreated_cannot_persist():
    fix = asking("", CallChange.of("DataLoader", num_workers=2, persistent_workers=True))
    assert edited(fix, analysis(loader(made=1)), SOURCE).diff is not None
    made = edited(fix, analysis(loader(made=3)), SOURCE)
    assert made.diff is None and "create it once" in made.change


@pytest.mark.parametrize("held", [{"held": ["h5py.File"]}, {"inner": {"held": ["h5py.File"]}}])
def test_what_forked_workers_must_not_share_is_opened_in_each_first(held: dict[str, Any]):
    of = analysis(loader(num_workers=0, line=2, dataset=held))
    made = edited(asking("", MORE, Where("src/train.py", 2)), of, SOURCE)
    assert made.diff is None and "holds h5py.File" in made.change
    assert edited(FIX, analysis(loader(dataset=held)), SOURCE).diff is not None, "it works with two workers already"


@pytest.mark.parametrize("facts", [{"worker_init": "open_files"}, {"sampler": "_InfiniteConstantSampler"}])
def test_a_data_set_that_relies_on_workers_is_not_left_without(facts: dict[str, Any]):
    fix = asking("", NO_WORKERS)
    made = edited(fix, analysis(loader(**facts)), SOURCE)
    assert made.diff is None and "get_worker_info" in made.change
    assert edited(fix, analysis(loader()), SOURCE).diff is not None


def test_words_stand_under_the_change():
    text = 'p.add_argument("--workers", type=int, default=2)\ntrain = DataLoader(data, num_workers=args.workers)\n'
    of = analysis(loader(line=2))
    fix = edited(asking(FIX.title, MORE, Where("src/train.py", 2)), of, Source("/job/src/train.py", "", text))
    assert fix.change == "DataLoader(..., num_workers=6)\npass --workers 6" and fix.options == ("pass --workers 6",)
    assert fix.typed == ("--workers 6",)
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


# -- statements of the job that set what a fix sets otherwise

THREADS = Setup((Invocation("torch.set_num_threads", (2,)),))
ANOMALIES = Setup((Invocation("torch.autograd.set_detect_anomaly", (False,)),))
DOUBLE = Setup((Invocation("torch.set_default_dtype", (Expression("torch.float32"),)),))
AFFINITY = Setup((Invocation("os.sched_setaffinity", (0, Expression("range(os.cpu_count())"))),))
STORED = Setup((Invocation("gradient_checkpointing_disable"),))
BENCHMARK = Setup((Assignment("torch.backends.cudnn.benchmark", True),))


def placed(call: Setup, *texts: str, touched: bool = False) -> Fix:
    sources = [Source(f"/job/{n}.py", "", text, touched) for n, text in enumerate(texts)]
    one_thread = replace(analysis(), values={("threads.intra_op", 0): 1.0})
    return edited(Fix.of("as the rule says", call, None, "one line"), one_thread, *sources)


@pytest.mark.parametrize(
    ("call", "text", "title", "line"),
    [
        (
            THREADS,
            "import torch\ntorch.set_num_threads(8)\n",
            "torch.set_num_threads(2) instead of torch.set_num_threads(8)",
            2,
        ),
        (
            THREADS,
            "from torch import set_num_threads\nset_num_threads(n)",
            "torch.set_num_threads(2) instead of set_num_threads(n)",
            2,
        ),
        (AFFINITY, "psutil.Process().cpu_affinity([0])\n", "as the rule says", 1),
        (
            AFFINITY,
            "import os\nos.sched_setaffinity(0, {0})\n",
            "os.sched_setaffinity(0, range(os.cpu_count())) instead of os.sched_setaffinity(0, {0})",
            2,
        ),
        (DOUBLE, "model = model.double()\n", "as the rule says", 1),
        (ANOMALIES, "with torch.autograd.detect_anomaly():\n    train()\n", "as the rule says", 1),
        (ANOMALIES, "Trainer(\n    max_epochs=3,\n    detect_anomaly=args.debug,\n)\n", "as the rule says", 3),
        (STORED, "model.gradient_checkpointing_enable()\n", "as the rule says", 1),
        (STORED, "TrainingArguments(out, gradient_checkpointing=True)\n", "as the rule says", 1),
        (
            BENCHMARK,
            "import torch\nfrom torch.backends import cudnn\ncudnn.benchmark = False\n",
            "torch.backends.cudnn.benchmark = True instead of cudnn.benchmark = False",
            3,
        ),
    ],
)
def test_the_statement_that_is_replaced_is_named(call: Setup, text: str, title: str, line: int) -> None:
    fix = placed(call, "import os\n", text)
    assert (fix.title, fix.where) == (title, Where("/job/1.py", line))


@pytest.mark.parametrize(
    "texts",
    [
        ("import torch\n",),
        ("Trainer(detect_anomaly=False, gradient_checkpointing=False)\n",),
        ("torch.set_num_threads(8)\ntorch.set_num_threads(4)\n",),
        ("def broken(\n",),
        (),
    ],
    ids=["none", "switched off", "several", "no Python", "no sources"],
)
def test_without_exactly_one_statement_the_fix_stays(texts: tuple[str, ...]) -> None:
    for call in (THREADS, ANOMALIES, STORED):
        assert placed(call, *texts) == placed(call)


def test_a_statement_that_makes_the_setting_says_more_than_the_line_that_it_slows() -> None:
    slowed = Fix("as the rule says", "", Where("/job/0.py", 9), "one line", call=STORED)
    sources = [
        Source(f"/job/{n}.py", "", text, False)
        for n, text in enumerate(("", "model.gradient_checkpointing_enable()\n"))
    ]
    assert edited(slowed, analysis(), *sources).where == Where("/job/1.py", 1)
    assert edited(slowed, analysis(), sources[0]).where == slowed.where


PADDED = Fix.of("pad to the longest", PaddedToLongest(), Where("/job/0.py", 9), "one line")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('def encode(rows):\n    return tokenizer(rows, padding="max_length")\n', "padding='max_length'"),
        ("\ntokenizer(rows, pad_to_max_length=True)\n", "pad_to_max_length=True"),
    ],
)
def test_the_argument_that_pads_to_one_length_is_named(text: str, words: str) -> None:
    fix = edited(PADDED, analysis(), Source("/job/1.py", "", text, False))
    assert (fix.title, fix.where) == (f"pad to the longest, instead of {words}", Where("/job/1.py", 2))


@pytest.mark.parametrize(
    "text",
    [
        'tokenizer(rows, padding="longest")\n',
        "tokenizer(rows, padding=how)\n",
        'f(padding="max_length")\n' * 2,
        "def (\n",
    ],
)
def test_where_no_argument_or_several_pad_to_one_length_the_loaders_place_stays(text: str) -> None:
    assert edited(PADDED, analysis(), Source("/job/1.py", "", text, False)) == PADDED


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ('os.environ["OMP_NUM_THREADS"] = "1"', "os.environ['OMP_NUM_THREADS'] = '1'"),
        ('environ["MKL_NUM_THREADS"] = "1"', "environ['MKL_NUM_THREADS'] = '1'"),
        ('os.environ["OMP_NUM_THREADS"] = str(args.n)', "os.environ['OMP_NUM_THREADS'] = str(args.n)"),
        ('os.environ.setdefault("OMP_NUM_THREADS", "1")', "os.environ.setdefault('OMP_NUM_THREADS', '1')"),
        ('os.environ.update(OMP_NUM_THREADS="1")', "os.environ.update(OMP_NUM_THREADS='1')"),
        (
            'os.environ.update({"A": "b", "OMP_NUM_THREADS": "1"})',
            "os.environ.update({'A': 'b', 'OMP_NUM_THREADS': '1'})",
        ),
        ('os.putenv("OMP_NUM_THREADS", "1")', "os.putenv('OMP_NUM_THREADS', '1')"),
    ],
)
def test_variables_that_the_job_sets_to_its_number_of_threads_are_named(statement: str, words: str) -> None:
    fix = placed(THREADS, f"import os\n{statement}\nimport torch\n")
    assert fix.title == f"torch.set_num_threads(2), or this number in `{words}`"
    assert fix.where == Where("/job/0.py", 2)


def test_all_variables_of_the_number_of_threads_are_named() -> None:
    both = placed(THREADS, 'os.environ["OMP_NUM_THREADS"] = "1"\nos.environ["MKL_NUM_THREADS"] = "1"\n')
    assert both.where == Where("/job/0.py", 1)
    assert both.title.endswith("`os.environ['OMP_NUM_THREADS'] = '1'` and `os.environ['MKL_NUM_THREADS'] = '1'`")


@pytest.mark.parametrize(
    "statement",
    [
        'os.environ["OMP_NUM_THREADS"] = "4"',
        'os.environ["OTHER"] = "1"',
        'n = os.environ.get("OMP_NUM_THREADS", "1")',
        'threads["OMP_NUM_THREADS"] = "1"',
        "os.environ.update(**variables)",
        'torch.set_num_threads(2); torch.set_num_threads(1); os.environ["OMP_NUM_THREADS"] = "1"',
    ],
    ids=["without effect", "another", "read", "a dict", "unknown", "set otherwise"],
)
def test_a_variable_that_does_not_give_the_number_of_threads_is_not_named(statement: str) -> None:
    assert placed(THREADS, f"{statement}\n") == placed(THREADS)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def step():\n    loss.backward()\n", 2),
        ("for x in data:\n    for part in x.chunk(4):\n        accelerator.backward(f(part))\nloss.backward()\n", 3),
        ("a.backward()\nb.backward()\n", None),
        ("train()\n", None),
    ],
)
def test_an_exchange_after_each_batch_is_avoided_at_its_backward(text: str, line: int | None) -> None:
    fix = Fix.of("exchange once a step", GradientsKept(), None, "small change")
    where = Where("/job/train.py", line) if line else None
    assert edited(fix, analysis(), Source("/job/train.py", "", text)) == replace(fix, where=where)


def test_code_that_suspends_the_exchange_already_is_told_what_it_left_outside() -> None:
    fix = Fix.of("exchange once a step", GradientsKept(), None, "small change")
    text = "loss = model(x)\nwith model.no_sync():\n    loss.backward()\n"
    made = edited(fix, analysis(), Source("/job/train.py", "", text))
    assert made.title == "exchange once a step: the forward pass, too, inside no_sync()"


def test_a_file_that_was_edited_since_is_not_read() -> None:
    assert placed(THREADS, "torch.set_num_threads(8)\n", touched=True).where is None


def test_an_attribute_of_another_object_is_not_the_switch() -> None:
    assert placed(BENCHMARK, "n.benchmark = False\n").where is None
    assert placed(BENCHMARK, "benchmark = False\n").where is None


def test_several_statements_of_one_fix_have_no_one_place() -> None:
    both = Setup((Invocation("gc.collect"), Invocation("gc.freeze")))
    assert placed(both, "import gc\ngc.collect()\n").where is None


# -- objects whose making was not recorded

FUSED = CallChange("AdamW", (("fused", True),), without=("foreach",))


def fused(*texts: str) -> Fix:
    sources = [Source(f"/job/{n}.py", "", text, False) for n, text in enumerate(texts)]
    return edited(Fix.of("AdamW in its fused form", FUSED, None, "one line"), analysis(), *sources)


def test_the_one_call_that_makes_it_is_the_place_and_gets_the_diff() -> None:
    fix = fused("import torch\n", "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)\n")
    assert fix.where == Where("/job/1.py", 1)
    assert fix.diff is not None
    assert "+optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)\n" in fix.diff


@pytest.mark.parametrize(
    "texts",
    [("import torch\n",), ("a = AdamW(x)\nb = AdamW(y)\n",), ("a = AdamW(x)\n", "b = AdamW(y)\n"), ("a = AdamW(\n",)],
)
def test_without_exactly_one_call_the_fix_stays(texts: tuple[str, ...]) -> None:
    assert fused(*texts) == Fix.of("AdamW in its fused form", FUSED, None, "one line")


def test_a_call_that_is_made_somewhere_else_keeps_its_place() -> None:
    assert fused("optimizer = AdamW(*everything)\n").where == Where("/job/0.py", 1)


def test_statements_that_keep_tensors_of_each_step_are_named() -> None:
    text = "for x in loader:\n    loss = model(x)\n    loss.backward()\n    losses.append(loss)\n"
    fix = Fix.of("find what rank 0 keeps of every step", NumbersKept(), None, "small change")
    found = edited(fix, analysis(loader()), Source("/job/train.py", "", text))
    assert found.where == Where("/job/train.py", 4) and found.title.endswith("its graph: `losses.append(loss)`")
    assert (
        edited(fix, analysis(loader()), Source("/job/train.py", "", text.replace("(loss)\n", "(loss.item())\n"))) == fix
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train = T.Compose([\n    T.ColorJitter(0.3),\n    T.RandomRotation(20),\n    T.Resize(64),\n])\n", 2),
        ("train = nn.Sequential(\n    ColorJitter(0.3), RandomRotation(20), Resize(64))\n", 2),
        ("steps = (\n    ToImage(), ColorJitter(0.3),\n    RandomRotation(20), Resize(64), ToTensor())\n", 2),
        ("train = Compose([Resize(64), ColorJitter(0.3), RandomRotation(20)])\n", 9),
        ("train = Compose([ColorJitter(0.3), blur, RandomRotation(20), Resize(64)])\n", 9),
        (2 * "train = Compose([ColorJitter(0.3), RandomRotation(20), Resize(64)])\n", 9),
    ],
    ids=["list", "arguments", "tuple", "shrunk first", "another between them", "two lists"],
)
def test_transforms_before_one_that_shrinks_are_named_by_the_line_of_the_first(text: str, line: int) -> None:
    loader_line = Where("/job/train.py", 9)
    change = ShrinkFirst("Resize", ("ColorJitter", "RandomRotation"))
    fix = Fix.of("put Resize first", change, loader_line, "small change")
    assert edited(fix, analysis(loader()), Source("/job/train.py", "", text)).where == Where("/job/train.py", line)


def test_the_call_that_made_a_table_is_changed_among_others_of_its_class() -> None:
    text = "self.users = nn.Embedding(users, 16)\nself.items = nn.Embedding(items, 16)\n"
    table = {"class": "Embedding", "file": "src/train.py", "line": 2, "rows": 1_000_000}
    of = analysis()
    of = replace(of, facts={"0": {**of.facts["0"], "tables": [table]}})
    found = edited(
        asking("sparse", CallChange.of("Embedding", sparse=True), Where("src/train.py", 2)),
        of,
        Source("/job/src/train.py", "", text),
    )
    assert found.diff is not None and "+self.items = nn.Embedding(items, 16, sparse=True)" in found.diff
    assert found.diff.count("\n+") == 2  # the file's name and this line
