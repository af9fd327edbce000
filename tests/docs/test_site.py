"""The site of the documentation: every link leads somewhere, no page is left out, and reading it needs no network."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from docs.site import BUILT, ROOT, BrokenLink, build, links, pages

from rn50_advisor.rules.registry import all_rules

FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def clone(home: Path) -> Path:
    """A copy of all pages, of what they link to, and of the site's configuration."""
    for page in [*pages(ROOT), Path("mkdocs.yml")]:
        (home / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, home / page)
    return home


def test_every_link_of_every_page_leads_to_a_file() -> None:
    assert {Path("README.md"), Path("SECURITY.md"), Path("docs/rules/DAT003.md")} <= set(pages(ROOT))


@pytest.mark.parametrize("target", ["docs/gone.md", "docs", "../outside.md"])
def test_a_link_to_no_file_of_the_clone_is_refused(target: str, tmp_path: Path) -> None:
    home = tmp_path / "clone"
    (home / "docs").mkdir(parents=True)
    (tmp_path / "outside.md").touch()
    (home / "README.md").write_text(f"see [this]({target})")
    with pytest.raises(BrokenLink, match=re.escape(f"README.md: {target}")):
        pages(home)


def test_code_and_other_sites_are_no_links() -> None:
    text = "[a](a.md#part) `[b](b.md)` [c](https://c.org) [d](#d)\n```\n[e](e.md)\n```\n"
    assert list(links(text)) == ["a.md"]


def test_the_site_has_all_pages_in_its_menu() -> None:
    menu = set(re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    mine = {f"docs/{page.relative_to(ROOT / 'docs')}" for page in (ROOT / "docs").rglob("*.md")}
    rules = {page for page in mine if page.startswith("docs/rules/")} - {"docs/rules/README.md"}
    assert menu == mine - rules | {"README.md", "SECURITY.md", "CONTRIBUTING.md"}


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    build(clone(tmp_path))
    built = list((tmp_path / BUILT).rglob("*.html"))
    assert len(built) > len(list(all_rules()))
    assert [found for page in built for found in FETCHED.findall(page.read_text(encoding="utf-8"))] == []
