"""Build the documentation as a static site: python tools/docs/build.py [--out site].

Pages are read where they are (README.md, docs/, benchmarks/, experiments/) and copied with the
layout of the repository, so that relative links are the same on GitHub and in the site. Only the
site has the navigation, which follows the sections of docs/README.md, and a page for each package
with the docstrings of what it exports. A warning of Sphinx, such as a broken link, is an error, and
so is anything that a page would load from another host.
"""

import argparse
import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STAGE = ROOT / ".cache" / "docs"
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "benchmarks/README.md",
    "experiments/README.md",
    "experiments/*/README.md",
    "experiments/results/*/results.md",
    "experiments/notebooks/*.ipynb",
)
# Pages below another page in the navigation.
CHILDREN = {
    "docs/api.md": ("docs/api/*",),
    "experiments/README.md": (
        "experiments/*/README.md",
        "experiments/notebooks/*.ipynb",
        "experiments/results/*/results.md",
    ),
}
# Pages of their own, which are copied as they are; conf.py knows the scheme of links to them.
OWN_PAGES = ("docs/zoo.html",)
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
# What a browser loads by itself; links that people follow may lead anywhere.
EXTERNAL = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|icon|preconnect|modulepreload))"""
    r"""[^>]*\bhref=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|(?:@import\s+|url\()["']?(?:https?:)?//[^"')\s]+"""
)


def stage(pages: list[Path], folder: Path) -> None:
    """Write the sources of the site."""
    written = {_write_page(page, folder) for page in pages}
    written |= {_write_api(module, folder) for module in packages()}
    assets = {asset for page in pages for asset in _linked_files(page)} - set(pages)
    for asset in assets:
        target = folder / asset.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(asset, target)
        written.add(target)
    for path in folder.rglob("*"):  # of an earlier build
        if path.is_file() and path not in written:
            path.unlink()


def _write_page(page: Path, folder: Path) -> Path:
    """Copy a page; links to Python modules lead to their page of the reference.

    Images of other hosts, such as badges, are left out.
    """
    name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    target = folder / ("index.md" if name == "README.md" else name)

    def link(found: re.Match) -> str:
        path, anchor = found[1], found[2] or ""
        return f"]({_site_path(page, path)}{anchor})"

    text = LINK.sub(link, re.sub(r"!\[[^]]*\]\(https?://[^)]*\)\n?", "", text))
    if name == "README.md":
        text += "".join(map(_toctree, *zip(*navigation(), strict=True)))
    if name in CHILDREN:
        text += _toctree("", _children(name))
    _write(target, text)
    return target


def _site_path(page: Path, path: str) -> str:
    """Return the path of a link in the site."""
    target = (page.parent / path).resolve()
    if not target.exists() or not target.is_relative_to(ROOT):
        return path  # of another host, or broken: Sphinx reports it
    name = target.relative_to(ROOT)
    if name.suffix == ".py" and (module := _module(name)) in packages():
        name = Path("docs", "api", f"{module}.rst")
    elif name == Path("README.md"):
        name = Path("index.md")
    elif name.as_posix() in OWN_PAGES:
        return f"page:{path}"
    else:
        return path
    return os.path.relpath(ROOT / name, page.parent)


def _linked_files(page: Path) -> set[Path]:
    """Return the files of the repository that a page shows or links."""
    targets = ((page.parent / found[1]).resolve() for found in LINK.finditer(page.read_text()))
    files = {path for path in targets if path.is_file() and path.is_relative_to(ROOT)}
    own = {ROOT / page for page in OWN_PAGES}
    return {path for path in files if path.suffix != ".py"} - own


def navigation() -> list[tuple[str, list[str]]]:
    """Return the sections of docs/README.md with the pages that they list."""
    sections = re.split(r"^## ", (ROOT / "docs" / "README.md").read_text(), flags=re.M)[1:]
    found = []
    for section in sections:
        title, _, text = section.partition("\n")
        items = re.findall(r"^- \[[^]]+\]\(([^)#]+)\)", text, re.M)
        found.append((title, [os.path.normpath(f"docs/{item}") for item in items]))
    found[0][1].append("All pages <docs/README>")
    return found


def _children(name: str) -> list[str]:
    """Return the pages below a page, relative to it."""
    if name == "docs/api.md":
        return [f"api/{module}" for module in packages()]
    listed = {page for _, pages in navigation() for page in pages}
    found = [path for pattern in CHILDREN[name] for path in sorted(ROOT.glob(pattern))]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    names = [os.path.relpath(one, Path(name).parent) for one in names if one not in listed]
    # Of results, the title is only the name of the study.
    return [re.sub(r"^(results/(\w+)/results)\.md$", r"Results of \2 <\1>", one) for one in names]


def _toctree(caption: str, pages: list[str]) -> str:
    names = [re.sub(r"\.(md|ipynb)$", "", page) for page in pages]
    options = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", *options, "", *names, "```", ""])


def _module(path: Path) -> str:
    return ".".join(part for part in path.with_suffix("").parts if part != "__init__")


@functools.cache
def packages() -> dict[str, list[str]]:
    """Return the exported names of every module that lists them in `__all__`."""
    found = {}
    for path in sorted((ROOT / "jaxrl").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = sorted(ast.literal_eval(node.value), key=str.lower)
                found[_module(path.relative_to(ROOT))] = names
    return dict(sorted(found.items()))


def _write_api(module: str, folder: Path) -> Path:
    """Write the page of a package; conf.py documents what it exports."""
    target = folder / "docs" / "api" / f"{module}.rst"
    _write(target, f"{module}\n{'=' * len(module)}\n\n.. exports:: {module}\n")
    return target


def _write(path: Path, text: str) -> None:
    """Write a file if it has changed: Sphinx reads only new files again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def external_assets(site: Path) -> list[str]:
    """Return what the pages would load from other hosts."""
    files = (path for path in site.rglob("*") if path.suffix in (".html", ".css"))
    return sorted(
        f"{path.relative_to(site)}: {found}"
        for path in files
        for found in EXTERNAL.findall(path.read_text(encoding="utf-8"))
    )


def run_sphinx(sources: Path, made: Path, doctrees: Path) -> int:
    """Make the pages; return the exit status, which is not 0 after a warning."""
    words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    folders = ["-c", Path(__file__).parent, "-d", doctrees, sources, made]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, *words, *map(str, folders)], env=env).returncode


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    parser.add_argument("--stage", type=Path, default=STAGE, help="folder of intermediate files")
    args = parser.parse_args(arguments)
    sources, made = args.stage / "sources", args.stage / "html"
    stage([path for pattern in PAGES for path in sorted(ROOT.glob(pattern))], sources)
    pickled = args.stage / "doctrees" / "environment.pickle"
    changed = max(path.stat().st_mtime for path in Path(__file__).parent.glob("*.py"))
    if pickled.exists() and pickled.stat().st_mtime < changed:
        pickled.unlink()  # Sphinx reads everything again
    # Not made in place: myst-nb leaves a folder beside its output.
    if status := run_sphinx(sources, made, args.stage / "doctrees"):
        return status
    for page in OWN_PAGES:
        shutil.copy2(ROOT / page, made / page)
    if external := external_assets(made):
        print("The site would load from other hosts:", *external, sep="\n  ", file=sys.stderr)
        return 1
    shutil.rmtree(args.out, ignore_errors=True)
    shutil.copytree(made, args.out, ignore=shutil.ignore_patterns(".*"))
    print(args.out / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
