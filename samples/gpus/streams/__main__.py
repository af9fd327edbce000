"""`python -m samples.gpus.streams [--held-out] [--only NAME,…] [--kept FILE] [--markdown FILE]`: plays the stories, scores the verdicts.

With `--kept` each score is written to a file at once, and a story whose score is there is not played again: a run can be interrupted, or
made in parts. Such a file belongs to one state of the code.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from pathlib import Path

from samples.gpus.streams.course_stories import COURSE, COURSE_NOTE
from samples.gpus.streams.description import Story
from samples.gpus.streams.everyday_stories import EVERYDAY, EVERYDAY_NOTE
from samples.gpus.streams.fresh_stories import FRESH, FRESH_NOTE
from samples.gpus.streams.held_out_stories import HELD_OUT, HELD_OUT_NOTE
from samples.gpus.streams.mixed_stories import MIXED, MIXED_NOTE
from samples.gpus.streams.stream_scores import Score, markdown, score
from samples.gpus.streams.stream_stories import STORIES
from samples.gpus.streams.uncommon_stories import UNCOMMON, UNCOMMON_NOTE

OWN_SETS = {"Stories": (STORIES, ""), "The course's job": (COURSE, COURSE_NOTE)}
HELD_OUT_SETS = {
    "Held-out stories": (HELD_OUT, HELD_OUT_NOTE),
    "More held-out stories": (MIXED, MIXED_NOTE),
    "Everyday jobs": (EVERYDAY, EVERYDAY_NOTE),
    "More everyday jobs": (FRESH, FRESH_NOTE),
    "Uncommon jobs": (UNCOMMON, UNCOMMON_NOTE),
}


def scored(stories: dict[str, Story], played: dict[str, float], kept: Path | None) -> list[Score]:
    known = _kept(kept, stories)
    found = []
    for name, story in stories.items():
        if name in known:
            found.append(known[name])
            continue
        with tempfile.TemporaryDirectory() as folder:
            one = score(name, story, Path(folder) / name, played=played)
        print(one.line, flush=True)
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps(one.as_json()) + "\n")
        found.append(one)
        gc.collect()
    return found


def _kept(file: Path | None, stories: dict[str, Story]) -> dict[str, Score]:
    if file is None or not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["name"]: Score.of_json(row, stories[row["name"]]) for row in rows if row["name"] in stories}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m samples.gpus.streams", description=__doc__)
    parser.add_argument("--held-out", action="store_true", help="also the stories that no rule was changed for")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--kept", type=Path, help="file of scores, by which a run that was interrupted goes on")
    parser.add_argument("--markdown", type=Path, help="file to write the table to")
    given = parser.parse_args()
    only = [name for name in given.only.split(",") if name]
    sets = {**OWN_SETS, **(HELD_OUT_SETS if given.held_out else {})}
    played: dict[str, float] = {}
    tables = {
        title: scored({name: story for name, story in stories.items() if not only or name in only}, played, given.kept)
        for title, (stories, _) in sets.items()
    }
    if given.markdown is not None:
        given.markdown.write_text(markdown(tables, {title: note for title, (_, note) in sets.items() if note}))


if __name__ == "__main__":
    main()
