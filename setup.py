"""The description for package indexes: README without what only a checkout can show. All else is in pyproject.toml."""

import re
from pathlib import Path

HOME = ""  # where README's files can be read, as https://host/owner/rn50-advisor/raw/main/; empty: nowhere yet
PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)([^)\s]+)\)\n\n?", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


def long_description(readme: str, home: str = HOME) -> str:
    """Leads relative pictures and links to `home`. Without one, pictures are left out and of links the words remain."""
    if home:
        return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", rf"]({home}\1)", readme)
    return LINK.sub(r"\1", PICTURE.sub("", readme))


if __name__ == "__main__":
    from setuptools import setup

    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(long_description=long_description(text), long_description_content_type="text/markdown")
