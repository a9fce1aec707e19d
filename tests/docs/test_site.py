"""The documentation site: every page has its place, and the build is strict."""

import importlib.util
import re

import pytest

from tests.docs.reading import ROOT

SCRIPT = ROOT / "tools" / "docs" / "build.py"
_spec = importlib.util.spec_from_file_location("docs_build", SCRIPT)
assert _spec and _spec.loader
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)


def test_navigation_has_the_sections_and_every_page_of_docs():
    sections = dict(build.navigation())
    assert [*sections] == [
        *("Start", "Guides", "Algorithms", "Reference", "Benchmarks", "Development")
    ]
    listed = [page for pages in sections.values() for page in pages]
    assert len(listed) == len(set(listed))
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")}
    assert pages - {"docs/README.md"} <= set(listed)
    assert all((ROOT / page).exists() for page in listed if "<" not in page)


def test_reference_lists_every_package_that_exports_names():
    text = (ROOT / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^\| \[`([\w.]+)`\]", text, re.M)) == [*build.packages()]
    assert {"fit", "load_policy"} <= set(build.packages()["jaxrl"])


def test_assets_of_other_hosts_are_found(tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="https://a.org">a link</a><script src="_static/own.js"></script>'
        '<script defer src="https://b.org/b.js"></script>'
        '<link rel="stylesheet" href="//c.org/c.css">'
    )
    (tmp_path / "style.css").write_text("@import url(https://d.org/d.css); a { b: url(own.png) }")
    found = " ".join(build.external_assets(tmp_path))
    assert [host for host in "abcd" if f"{host}.org" in found] == ["b", "c", "d"]


@pytest.fixture(scope="module")
def sphinx():
    for tool in ("sphinx", "furo", "myst_nb", "ziamath"):
        if not importlib.util.find_spec(tool):
            pytest.skip(f"{tool} is not installed: `make docs` installs what builds the site")


def test_broken_links_anchors_and_formulas_fail(sphinx, tmp_path, capfd):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "index.md").write_text("# One\n\n[one](#one), $a_t$, <https://a.org>\n")
    assert build.run_sphinx(sources, tmp_path / "html", tmp_path / "trees") == 0
    capfd.readouterr()
    (sources / "index.md").write_text("# One\n\n[x](other.md) and [y](#two) and $\\unknown x$\n")
    assert build.run_sphinx(sources, tmp_path / "html", tmp_path / "trees") != 0
    warnings = capfd.readouterr().err
    assert "other.md" in warnings and "two" in warnings and "\\unknown" in warnings


def test_site_has_every_kind_of_page(sphinx, tmp_path):
    site = tmp_path / "site"
    assert build.main(["--out", str(site), "--stage", str(tmp_path / "stage")]) == 0
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert {
        "index.html",
        "search.html",
        "docs/guide.html",
        "docs/zoo.html",
        "docs/api/jaxrl.html",
        "benchmarks/README.html",
        "docs/benchmarks.html",
        "experiments/notebooks/tour.html",
        "experiments/rrd/README.html",
    } <= pages
    assert 'id="jaxrl.fit"' in (site / "docs/api/jaxrl.html").read_text()
    assert 'href="zoo.html"' in (site / "docs/gallery.html").read_text()
    assert {path.suffix for path in (site / "_images").iterdir()} >= {".gif", ".png"}
    assert (site / "searchindex.js").stat().st_size > 10_000
