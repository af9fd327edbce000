"""The recorded run of `rn50-advisor demo`: folders and the name of the machine are replaced, all else stays."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from samples.record_demo import places, replace_places


def test_inner_folders_are_replaced_before_those_around_them() -> None:
    found = list(places(Path("/tmp/job")))
    assert all(not inner.startswith(f"{outer}/") for i, outer in enumerate(found) for inner in found[i + 1 :])
    assert "/tmp/job" in found


def test_folders_are_replaced_anywhere_and_the_host_where_it_stands_alone(tmp_path: Path) -> None:
    facts = json.dumps({"hostname": "vm", "file": "/tmp/job/train.py", "cpu": "a vm of AMD"})
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as db:
        db.execute("CREATE TABLE facts (pid INTEGER, value TEXT)")
        db.executemany("INSERT INTO facts VALUES (?, ?)", [(7, facts), (8, "vm")])
        db.commit()
    replace_places(tmp_path / "run.sqlite", {"/tmp/job": "/home/user"}, "vm")
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as db:
        (first, _), (second, host) = [
            (json.loads(v), p) if p == 7 else (p, v) for p, v in db.execute("SELECT * FROM facts")
        ]
    assert first == {"hostname": "node0", "file": "/home/user/train.py", "cpu": "a vm of AMD"}
    assert (second, host) == (8, "node0")
