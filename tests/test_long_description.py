"""What a package index shows of README: nothing that is missing there, or all of it where the files can be read."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
long_description = runpy.run_path(str(ROOT / "setup.py"))["long_description"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_without_a_home_pictures_go_and_words_of_links_stay() -> None:
    assert long_description(
        "see [page](docs/a.md), [site](https://b.org)\n\n![screen](docs/s.svg)\n\n[down](#down)", ""
    ) == ("see page, [site](https://b.org)\n\n[down](#down)")


def test_with_a_home_pictures_and_links_lead_there() -> None:
    led = long_description(
        "![screen](docs/s.svg) [page](docs/a.md#part) [site](https://b.org) [down](#down)", "https://h/"
    )
    assert led == "![screen](https://h/docs/s.svg) [page](https://h/docs/a.md#part) [site](https://b.org) [down](#down)"


def test_of_readme_nothing_but_pictures_and_targets_is_left_out() -> None:
    shown = long_description(README, "")
    assert re.findall(r"\]\((?!https?:|#)", shown) == []
    lost = re.sub(r"^!\[.*\n", "", README, flags=re.MULTILINE)
    assert re.findall(r"\w+", shown) == re.findall(r"\w+", re.sub(r"\]\((?!https?:|#)[^)]*\)", "]", lost))
