"""The loaders of a job in words: one row for each, however many ranks made it."""

from __future__ import annotations

from loader_samples import TRAINING, report
from rn50_advisor.advisor.model.wording.loader_words import loader_rows


def test_a_loader_of_all_ranks_is_one_row() -> None:
    rows = loader_rows(report(ranks=8).facts)
    assert [(row.place, row.role, len(row.ranks)) for row in rows] == [
        ("/job/train.py:57", "trains", 8),
        ("/job/train.py:63", "evaluates", 8),
    ]


def test_the_number_of_times_a_loader_was_made_is_shown() -> None:
    facts = {"0": {"loaders": [{**TRAINING, "made": 3}]}, "1": {"loaders": [{**TRAINING, "made": 2}]}}
    (row,) = loader_rows(facts)
    assert ("made", "3 times") in row.details


def test_ranks_with_other_arguments_have_rows_of_their_own() -> None:
    facts = {"0": {"loaders": [TRAINING]}, "1": {"loaders": [{**TRAINING, "num_workers": 1}]}}
    assert [row.ranks for row in loader_rows(facts)] == [("0",), ("1",)]


def test_the_short_form_says_what_matters() -> None:
    training, test = loader_rows(report().facts)
    assert training.short == (
        "4 workers · batch 64 · shuffled · prefetch 2 · pinned · Subset, 500 samples, of ImageFolder, "
        "1,281,167 samples · RandomResizedCrop, Flip, ToTensor, Normalize and 1 more"
    )
    assert test.short.startswith("loads in the training process · batch 1 · in order · pinned")


def test_the_known_settings_of_another_librarys_loader_are_shown() -> None:
    loader = {"id": 0, "training": True, "file": "t.py", "line": 3, "class": "DALIGenericIterator", "batch_size": 64}
    (row,) = loader_rows({"0": {"loaders": [{**loader, "library": "nvidia.dali"}]}})
    assert row.short == "batches of nvidia.dali · batch 64"


def test_of_hundreds_of_loaders_some_are_shown() -> None:
    many = [{**TRAINING, "line": line} for line in range(300)]
    assert len(loader_rows(report(loaders=many).facts)) == 20
