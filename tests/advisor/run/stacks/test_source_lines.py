"""Lines of source files that may be no files."""

from __future__ import annotations

import os
from pathlib import Path

from rn50_advisor.advisor.run.stacks.source_lines import source_line, source_lines


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("a = 1\nb = 2")
    assert source_lines(str(file)) == ["a = 1\n", "b = 2\n"]
    assert [source_line(str(file), number) for number in (0, 1, 3, -1)] == ["", "a = 1\n", "", ""]


def test_a_pipe_is_left_to_the_job(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    assert source_lines(str(tmp_path / "train.py")) == [] and source_line(str(tmp_path / "train.py"), 1) == ""
    assert source_lines("/no/such.py") == []
