"""Links, modules, functions and flags named in the documents exist."""

import contextlib
import importlib
import io
import json
import re

import pytest

from tests.docs import reading
from tests.docs.reading import DOCUMENTS, ROOT

# Flags of third-party programs.
THIRD_PARTY = {"--logdir", "--build-arg", "--gpus", "--rm", "--user", "--xla"}
# Pages without commands that are tried have links too.
LINKED = [
    *DOCUMENTS,
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("experiments/results/*/*.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("experiments/notebooks/*.ipynb"))),
]
FOLDERS = ("jaxrl", "experiments", "benchmarks", "tests", "tools")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


def _text(document):
    text = (ROOT / document).read_text()
    if not document.endswith(".ipynb"):
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n\n".join("".join(cell["source"]) for cell in cells)


@pytest.mark.parametrize("document", LINKED)
def test_links_resolve(document):
    broken = []
    for link in _links(_text(document)):
        path, _, anchor = link.partition("#")
        if re.match("https?://", path):
            continue
        target = ROOT / document if not path else (ROOT / document).parent / path
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            broken.append(link)
    assert not broken


def _links(text):
    """Return what a page links and shows, also in HTML."""
    text = _without_code(text)
    return re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"(?:src|href)=\"([^\"]+)", text)


def _without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def _anchors(text):
    """Return the anchors that GitHub generates for headings; repeated ones are numbered."""
    headings = re.findall(r"^#+ (.+)$", _without_code(text), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    slugs = [re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain]
    return {
        slug + (f"-{slugs[:n].count(slug)}" * (slug in slugs[:n])) for n, slug in enumerate(slugs)
    }


def test_broken_links_and_anchors_are_found():
    page = '# One `a`\n```\n# two\n```\n## Three\n## Three\n[x](#y) ![z](z.png) <img src="w.gif">'
    assert _anchors(page) == {"one-a", "three", "three-1"}
    assert _links(page) == ["#y", "z.png", "w.gif"]


def test_every_page_is_in_the_index():
    index = _text("docs/README.md")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()
    assert "(docs/README.md)" in _text("README.md")


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.startswith("docs/")])
def test_named_modules_and_functions_exist(document):
    written = {one.file for one in reading.examples(_text(document)) if one.file}
    missing = []
    for path, name in re.findall(r"`([\w/]+\.py)(?:: ([\w.]+))?`", _text(document)):
        found = [p for p in SOURCES if str(p).endswith(f"/{path}")]
        sources = "\n".join(p.read_text() for p in found)
        parts = name.split(".") if name else []
        known = all(re.search(rf"^\s*(def|class) {part}\b", sources, re.M) for part in parts)
        if path not in written and not (found and known):
            missing.append(f"{path} {name}")
    assert not missing


def test_every_documented_flag_exists():
    documented, modules = set(), {"jaxrl.train"}
    for document in (d for d in DOCUMENTS if d.startswith(("docs/", "README"))):
        documented |= set(re.findall(r"(?<=[\s`({])--[a-z][a-z0-9.-]*", _text(document)))
        found = reading.examples(_text(document))
        modules |= set(re.findall(r"python -m ([\w.]+)", " ".join(one.text for one in found)))
    known = set(re.findall(r"--[a-z][a-z0-9.-]*", "".join(map(_help, sorted(modules)))))
    known |= {re.sub(r"^--(.*\.)?(?=[^.]*$)", r"--\1no-", flag) for flag in known}  # switches
    sections = {f"{flag.partition('.')[0]}." for flag in known}  # documented as --ppo.*
    assert documented - known - sections - THIRD_PARTY == set()


def _help(name: str) -> str:
    """Return the help text of a command."""
    out, module = io.StringIO(), importlib.import_module(name)
    if not hasattr(module, "main"):
        return ""
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setattr("sys.argv", [name, "--help-all" if name == "jaxrl.train" else "--help"])
        with contextlib.redirect_stdout(out):
            module.main()
    return out.getvalue()
