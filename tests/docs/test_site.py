"""The site of the documentation: every link leads somewhere, no page is left out, and it needs neither network nor server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from docs.site import BUILT, ROOT, BrokenLink, build, links, pages

from rn50_advisor.rules.registry import all_rules

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def clone(home: Path) -> Path:
    """A copy of all pages, of what they link to, and of the site's configuration."""
    for page in [*pages(ROOT), Path("mkdocs.yml"), Path("docs/iframe-worker.js")]:
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    home = clone(tmp_path_factory.mktemp("site"))
    build(home)
    return home / BUILT


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_the_network(site: Path) -> None:
    built = list(site.rglob("*.html"))
    assert len(built) > len(list(all_rules()))
    assert [found for page in built for found in FETCHED.findall(page.read_text(encoding="utf-8"))] == []


def test_charts_are_pictures_whose_boxes_lead_to_pages_of_the_site(site: Path) -> None:
    page = site / "docs" / "causes.html"
    text = page.read_text(encoding="utf-8")
    boxes = re.findall(r'<a href="(rules/[A-Z]+\d+\.html)"><rect', text)
    assert boxes and all((page.parent / box).is_file() for box in boxes)
    assert "flowchart" not in text and "<svg viewBox" in text


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_search_finds_pages_when_the_site_is_opened_from_the_disk(site: Path) -> None:
    asked = f"{(site / 'index.html').as_uri()}?q=straggler"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom")
    seen = subprocess.run([str(CHROMIUM), *options, asked], capture_output=True, text=True, timeout=120, check=True)
    assert "COM002.html" in "".join(re.findall(r'<a href="[^"]*" class="md-search-result__link"', seen.stdout))
