"""Which way of holding writes back is chosen, what is said about it, and what is left: nothing."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from holding import way
from rn50_advisor.advisor.trials import containment
from rn50_advisor.advisor.trials.containment import PREFIX, CannotContain, Containment, Way, choose


def wanted_by(command: list[str]) -> dict[str, object]:
    spec: dict[str, object] = json.loads(command[command.index("--") - 1])
    return spec


def test_the_first_way_that_works_is_taken(tmp_path: Path) -> None:
    ways = [Way("overlay", tmp_path / "gone"), way("landlock", tmp_path)]
    with choose(["job"], ways=ways) as chosen:
        assert chosen.way == ways[1]
    assert list(tmp_path.iterdir()) == []


def test_an_overlay_is_preferred_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "ROOM_MIN_BYTES", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    way("overlay", tmp_path)
    with choose(["job"]) as chosen:
        assert chosen.way.mode == "overlay"
        assert chosen.unwritable == []
    assert list(tmp_path.iterdir()) == []


def test_without_any_way_it_says_why_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotContain, match="No such file") as refused:
        choose(["job"], ways=[Way("overlay", tmp_path / "gone")])
    assert "--allow-writes" in refused.value.hint


def test_writes_that_come_through_are_a_reason_against_a_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Containment, "command", lambda self, argv: list(argv))
    with pytest.raises(CannotContain, match="came through"):
        choose(["job"], ways=[Way("overlay", tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_cannot_write_as_usual_is_a_reason_against_an_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = json.dumps({"refused": ["emptied"], "unwritable": []})
    monkeypatch.setattr(Containment, "command", lambda self, argv: [sys.executable, "-c", f"print({said!r})"])
    with pytest.raises(CannotContain, match="cannot be emptied"):
        choose(["job"], ways=[Way("overlay", tmp_path)])


def test_a_child_that_fails_is_a_reason_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Containment, "command", lambda self, argv: [sys.executable, "-c", "raise SystemExit('broken')"])
    with pytest.raises(CannotContain, match="broken"):
        choose(["job"], ways=[Way("overlay", tmp_path)])


def test_places_without_room_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "_free_bytes", lambda place: 1 << 30)
    reasons = list[str]()
    ways = list(containment._ways(reasons))
    assert all(way.mode == "landlock" or way.memory_bytes for way in ways)
    assert "1.0 of 4 GiB are free" in reasons[0]
    assert ways[-1].mode == "landlock"


def test_places_on_a_disk_come_before_places_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / /tmp rw - tmpfs tmpfs rw\n")
    monkeypatch.setattr(containment, "MOUNTINFO", mountinfo)
    monkeypatch.setattr(containment, "_free_bytes", lambda place: 1 << 40)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    places = [way.place for way in containment._ways([]) if way.mode == "overlay" and not way.memory_bytes]
    assert places == [Path("/var/tmp"), Path("/tmp")]


def test_landlock_takes_a_place_with_room_for_the_names_of_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("deep" * 10)
    long.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(long))
    place = next(way.place for way in containment._ways([]) if way.mode == "landlock")
    assert place == Path("/tmp")
    listener = place / "rn50-try-4194304-123456789-abcdefgh/job/tmp/pymp-abcdefgh/listener-abcdefgh"
    assert len(str(listener)) <= 107
    assert len(str(listener)) - len(str(place)) + containment.PLACE_BYTES_MAX <= 107
    monkeypatch.setattr(containment, "_SHORT_PLACES", ())
    assert [way.place for way in containment._ways([]) if way.mode == "landlock"] == [long]


def test_folders_that_arguments_and_variables_name_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("out", "logs", "scratch"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    argv = ["train.py", f"--out={tmp_path}/out", f"{tmp_path}/logs/new.txt", "--lr=0.1", "/no/such/place"]
    assert set(map(str, (tmp_path / "out", tmp_path / "logs", tmp_path / "scratch", Path.cwd()))) <= set(
        containment._wanted(argv)
    )
    with Containment(Way("overlay", tmp_path)) as made:
        spec = wanted_by(made.command(argv))
    assert spec["wanted"] == [str(tmp_path / "out"), str(tmp_path / "logs")]


def test_notes_say_what_is_held_back_and_what_is_not(tmp_path: Path) -> None:
    with Containment(Way("overlay", tmp_path)) as made:
        made.unwritable = ["/lustre/me"]
        notes = "\n".join(made.notes())
        assert str(tmp_path) in notes and "/lustre/me" in notes and "W&B" in notes
        assert "not held back" in notes and "network" in notes
    with Containment(Way("overlay", tmp_path, 1 << 30)) as made:
        assert "in memory" in made.notes()[0]
    with Containment(Way("landlock", tmp_path)) as made:
        notes = "\n".join(made.notes())
        assert "Landlock" in notes and "network" in notes


def test_room_is_watched_where_a_disk_could_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Containment(Way("overlay", tmp_path)) as disk, Containment(Way("overlay", tmp_path, 1 << 30)) as memory:
        assert disk.has_room() and memory.has_room()
        monkeypatch.setattr(containment, "_free_bytes", lambda place: 1 << 29)
        assert not disk.has_room()
        assert memory.has_room()


def test_closing_removes_folders_that_let_nobody_in_and_no_others(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}1-2-abcdefgh").mkdir()  # of somebody else: no marker of ours
    (tmp_path / "linked").mkdir()
    made = Containment(Way("overlay", tmp_path))
    closed = made.folder / "1-1" / "layers" / "work"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    (closed / "link").symlink_to(tmp_path / "linked")
    closed.chmod(0)
    living = made.folder / f"{os.getpid()}-{containment.own_folder.start_ticks(os.getpid())}"
    living.mkdir()
    made.clear()
    assert not (made.folder / "1-1").exists()
    assert living.exists(), "its start still runs"
    made.close()
    assert {path.name for path in tmp_path.iterdir()} == {f"{PREFIX}1-2-abcdefgh", "linked"}


def test_the_jobs_variables_lead_into_the_containment(tmp_path: Path) -> None:
    with Containment(Way("landlock", tmp_path)) as made:
        found = made.environment({"HOME": str(tmp_path)})
        assert Path(found["TMPDIR"] or "").is_relative_to(made.folder)
        assert found["WANDB_MODE"] == "offline"
        assert (found["TMPDIR"] is not None and len(found["TMPDIR"]) + 33 <= 107) or len(str(tmp_path)) > 40
    with Containment(Way("overlay", tmp_path)) as made:
        assert "TMPDIR" not in made.environment({})
