"""Links, modules, functions and flags named in the documents exist."""

import contextlib
import importlib
import io
import re

import pytest

from tests.docs import reading
from tests.docs.reading import DOCUMENTS, ROOT

# Flags of third-party programs.
THIRD_PARTY = {"--logdir"}
FOLDERS = ("jaxrl", "experiments", "benchmarks", "tests", "tools")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


def _text(document):
    return (ROOT / document).read_text()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_resolve(document):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _text(document)):
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = ROOT / document if not path else (ROOT / document).parent / path
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            broken.append(link)
    assert not broken


def _anchors(text):
    """Return the anchors that GitHub generates for headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
