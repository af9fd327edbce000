"""Nothing of a triage remains: its folder, its children, what a killed one left; and it interrupts nobody else."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.run.rings.own_folder import LOCK
from rn50_advisor.advisor.triage import child_program
from rn50_advisor.advisor.triage.child_program import run_child, why_not
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.storage import decode_speed
from rn50_advisor.advisor.triage.storage.folder_place import PREFIX, scratch_folder
from rn50_advisor.advisor.triage.storage.timed_io import list_files

_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where children are looked for."""
    monkeypatch.setattr(child_program, "_HERE", tmp_path)
    return tmp_path


def run(programs: Path, text: str, timeout_s: float = 60.0) -> tuple[child_program.Ended, list[dict[str, Any]]]:
    (programs / "probe.py").write_text(textwrap.dedent(text))
    results: list[dict[str, Any]] = []
    ended = run_child(
        sys.executable, "probe", {"a": 1}, timeout_s=timeout_s, scratch=programs, on_result=results.append
    )
    return ended, results


def test_nothing_is_written_beside_the_scratch_folder(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by python, torch or CUDA by the way, wherever the shell would have them write."""
    for name in ("TMPDIR", "XDG_CACHE_HOME", "CUDA_CACHE_PATH"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (programs / "beside.py").write_text("X = 1\n")
    told = """
        import json, os, sys, tempfile
        sys.path.insert(0, os.getcwd())
        import beside
        names = ("TMPDIR", "XDG_CACHE_HOME", "CUDA_CACHE_PATH")
        print(json.dumps({"temporary": tempfile.gettempdir(), **{name: os.environ[name] for name in names}}))
    """
    ended, results = run(programs, told)
    assert ended.code == 0 and set(results[0].values()) == {str(programs)}, ended.said
    assert not (programs / "__pycache__").exists()


def test_a_scratch_folder_below_a_relative_one_is_found_by_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They live in it, and tell torch of it by a URI."""
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    with scratch_folder(Path("here")) as folder:
        assert folder.is_absolute() and folder.parent == tmp_path / "here" and folder.as_uri()


CHILDREN = sorted((_ROOT / "advisor" / "triage" / "children").glob("*.py"))


@pytest.mark.parametrize("path", CHILDREN, ids=lambda path: path.stem)
def test_children_are_python_3_9_and_import_nothing_of_ours(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    named = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in named}
    assert {str(module).partition(".")[0] for module in modules} <= sys.stdlib_module_names


def test_results_come_line_by_line_and_what_is_none_is_left_out(programs: Path) -> None:
    ended, results = run(
        programs,
        """
        import json, sys
        print(json.dumps({"asked": json.loads(sys.argv[1])}), flush=True)
        print("a library says hello")
        print("[1]")
        """,
    )
    assert results == [{"asked": {"a": 1}}] and ended.code == 0


def test_why_a_child_failed_is_told(programs: Path) -> None:
    ended, _ = run(programs, "raise ImportError('no torch here')")
    assert "no torch here" in why_not(ended, "measuring")
    ended, _ = run(programs, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert "SIGSEGV" in why_not(ended, "measuring")


GRANDCHILD = """
import subprocess, sys, time
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print('{"pid": %d}' % sleeper.pid, flush=True)
time.sleep(600)
"""


def test_a_child_that_takes_too_long_ends_with_all_that_it_started(programs: Path) -> None:
    ended, results = run(programs, GRANDCHILD, timeout_s=2.0)
    assert ended.timed_out and "too long" in why_not(ended, "measuring")
    if results:
        psutil.wait_procs([p for p in [_process(results[0]["pid"])] if p], timeout=10)
        assert not _runs(results[0]["pid"])


def test_an_interrupt_ends_the_child_and_all_that_it_started(programs: Path) -> None:
    (programs / "probe.py").write_text(GRANDCHILD)
    pids: list[int] = []

    def interrupt(result: dict[str, Any]) -> None:
        pids.append(result["pid"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child(sys.executable, "probe", {}, timeout_s=60, scratch=programs, on_result=interrupt)
    psutil.wait_procs([p for p in [_process(pids[0])] if p], timeout=10)
    assert not _runs(pids[0])


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _runs(pid: int) -> bool:
    process = _process(pid)
    return process is not None and process.status() != psutil.STATUS_ZOMBIE


def test_the_folder_goes_away_with_its_contents(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "x").write_text("x")
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o77 == 0
    with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_folder_goes_away_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom rn50_advisor.advisor.triage.storage.folder_place import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'x').write_text('x')\n    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=_ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        process.wait(60)
    assert list(tmp_path.iterdir()) == []


def left_behind(where: Path, **told: str) -> Path:
    """By one that was killed in it. `told`: what its marker says otherwise."""
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom rn50_advisor.advisor.triage.storage.folder_place import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'cache').mkdir()\n    (folder / 'cache/x').write_text('x')\n"
        "    print(folder, flush=True)\n    os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(where)], capture_output=True, text=True, check=True, cwd=_ROOT
    )
    folder = Path(done.stdout.strip())
    for here, there in told.items():
        marker = (folder / LOCK).read_text()
        (folder / LOCK).write_text(marker.replace(Path(f"/proc/sys/kernel/random/{here}").read_text().strip(), there))
    return folder


def test_what_a_killed_one_left_goes_with_the_next(tmp_path: Path) -> None:
    left = left_behind(tmp_path)
    with scratch_folder(tmp_path) as alive:
        assert not left.exists()
        other = tmp_path / f"{PREFIX}12345-678-abcdefgh"
        (other / "of a user").mkdir(parents=True, mode=0o700)
        with scratch_folder(tmp_path):
            assert alive.exists() and other.exists()


def test_what_may_be_another_machines_goes_after_a_day(tmp_path: Path) -> None:
    now, then = (left_behind(tmp_path, boot_id=name) for name in ("now", "then"))
    two_days_ago = time.time() - 2 * 86_400
    os.utime(then, (two_days_ago, two_days_ago))
    with scratch_folder(tmp_path):
        assert now.exists() and not then.exists()


def decoded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, results: list[dict[str, Any]], code: int = 0
) -> dict[str, Any]:
    def played(*arguments: object, on_result: Any, **more: object) -> child_program.Ended:
        for result in results:
            on_result(result)
        return child_program.Ended(code, False, "ImportError: no module named PIL")

    monkeypatch.setattr(decode_speed, "run_child", played)
    items = decode_speed.decoding(TriageOptions(tmp_path, "python"), Watch())
    return {item.check.name if isinstance(item, Found) else item.name: item for item in items}


TOLD = {"pipeline": "torchvision 1", "whole": True}


@pytest.mark.parametrize(
    ("rate", "whole", "state"), [(174, True, "ok"), (173, True, "low"), (86, True, "bad"), (269, False, "low")]
)
def test_a_core_is_held_against_published_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rate: float, whole: bool, state: str
) -> None:
    found = decoded(monkeypatch, tmp_path, [{**TOLD, "whole": whole}, {"one": rate}])
    assert found["decode.images_per_core_s"].check.state == state
    assert found["decode.images_per_core_s"].remedy == "hand-back"
    assert "github.com/ternaus/imread_benchmark" in found["decode.images_per_core_s"].check.expected.source


def test_without_a_decoder_there_is_a_gap_with_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (gap,) = decoded(monkeypatch, tmp_path, [], 1).values()
    assert "no module named PIL" in gap.reason and "--python" in gap.hint


def test_more_cores_than_are_measured_are_not_expected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """64 processes at most: of 256 cores they can do no more than 64 do."""
    monkeypatch.setattr(decode_speed, "cores_allowed", lambda watch: 256.0)
    found = decoded(monkeypatch, tmp_path, [{**TOLD, "one": 300.0, "all": 64 * 200.0}])
    assert found["decode.images_all_cores_s"].check.state == "ok"
    assert found["decode.images_all_cores_s"].check.expected.lo == pytest.approx(0.5 * 64 * 0.75 * 232)


def test_processes_that_died_are_not_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dead = {"why_not_all": "1 of 2 processes ended without a result"}
    found = decoded(monkeypatch, tmp_path, [{**TOLD, "one": 300.0}, dead])
    assert isinstance(found["decode.images_all_cores_s"], TriageGap)


def test_of_processes_that_decode_each_tells_its_rate_or_none() -> None:
    spec = importlib.util.spec_from_file_location("decoding_child", CHILDREN[1])
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    def breaks(data: bytes) -> None:
        os._exit(1)

    assert program.by_all(breaks, [b""], 2, 0.1) == [None, None]
    assert all(rate > 0 and 0.0 < ran < 1.5 for rate, ran in program.by_all(len, [b""], 2, 0.1))


def test_cores_that_were_not_to_be_had_are_told_beside_the_rate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = decoded(monkeypatch, tmp_path, [{**TOLD, "one": 300.0, "all": 60.0, "ran_share": 0.4}])
    assert found["decode.images_all_cores_s"].ran_share == 0.4
    assert found["decode.images_per_core_s"].ran_share is None


def test_pictures_of_the_data_that_nobody_could_decode_are_a_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def played(*arguments: object, on_result: Any, **more: object) -> child_program.Ended:
        on_result({**TOLD, "one": 300.0})
        return child_program.Ended(0, False, "")

    monkeypatch.setattr(decode_speed, "run_child", played)
    for name in ("", "x.jpg"):
        if name:
            (tmp_path / name).write_bytes(bytes(10_000))
        items = decode_speed.decoding(
            TriageOptions(tmp_path, "python", tmp_path, listing=list_files(tmp_path)), Watch()
        )
        (reason,) = [one.reason for one in items if isinstance(one, TriageGap) and "data_images" in one.name]
        assert ("could be decoded" if name else "no JPEGs") in reason


def test_an_interpreter_finds_its_packages_where_the_shell_says(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On clusters torch often lies in a folder of PYTHONPATH."""
    (programs / "packages").mkdir()
    (programs / "packages" / "only_there.py").write_text("WORD = 'found'\n")
    monkeypatch.setenv("PYTHONPATH", str(programs / "packages"))
    ended, results = run(programs, "import json, only_there; print(json.dumps({'word': only_there.WORD}))")
    assert results == [{"word": "found"}], ended.said
