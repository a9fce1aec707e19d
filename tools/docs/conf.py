"""Configuration of Sphinx. `tools/docs/build.py` prepares the pages and calls it."""

import functools
import html
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import ziamath
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging

import jaxrl

sys.path.insert(0, str(Path(__file__).parent))
import build

project = "jaxrl"
release = version = jaxrl.__version__
html_title = "jaxrl"
extensions = ["myst_nb", "sphinx.ext.autodoc"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 6
myst_url_schemes = {"http": None, "https": None, "mailto": None, "page": "{{path}}"}
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # of another host; the notebooks have none
highlight_language = "none"
smartquotes = False  # they would turn the dashes of flags into one

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
add_module_names = False

html_theme = "furo"
html_math_renderer = "svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

_LOGGER = logging.getLogger(__name__)
_FIELDS = {"Args:": "param", "Raises:": "raises"}  # sections of docstrings


class Exports(Directive):
    """Document the names that a package exports, each by autodoc."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the package's docstring and of every name."""
        module = self.arguments[0]
        lines = [f".. automodule:: {module}", "   :no-members:", ""]
        loaded = importlib.import_module(module)
        for name in build.packages()[module]:
            lines += _directive(f"{module}.{name}", getattr(loaded, name))
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(StringList(lines, source=module), 0, section, match_titles=True)
        return section.children


def _directive(name: str, value: Any) -> list[str]:
    """Return the lines of reStructuredText that document one exported value."""
    if name in build.packages():  # a module with a page of its own
        return [f".. py:module:: {name}", "   :no-index:", "", f":doc:`{name}`", ""]
    if inspect.ismodule(value):
        title = name.rpartition(".")[2]
        return [title, "-" * len(title), "", f".. automodule:: {name}", "   :members:", ""]
    if (first := _first_export().get(id(value), name)) != name:
        return [f".. py:attribute:: {name}", "   :no-index:", "", f"   :py:obj:`{first}`", ""]
    if inspect.isclass(value) and value.__module__.startswith("jaxrl"):
        return [f".. autoclass:: {name}", "   :members:", ""]
    if inspect.isfunction(value):
        return [f".. autofunction:: {name}", ""]
    text = repr(value) if len(repr(value)) < 80 else type(value).__name__
    module, _, short = name.rpartition(".")
    return [f".. py:data:: {short}", f"   :module: {module}", f"   :value: {text}", ""]


@functools.cache
def _first_export() -> dict[int, str]:
    """Return the first name by which each class and function is exported."""
    found: dict[int, str] = {}
    for module, names in build.packages().items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(id(value), f"{module}.{name}")
    return found


def _docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring, which is nearly plain text, into reStructuredText.

    Indented lines, and paragraphs with columns, are formulas or code.
    """
    end = next((i for i, line in enumerate(lines) if line.strip() in _FIELDS), len(lines))
    found: list[str] = []
    for paragraph in "\n".join(lines[:end]).split("\n\n"):
        has_columns = re.search(r"\S {2,}\S", paragraph)
        for line in paragraph.splitlines():
            is_literal = bool(has_columns) or line.startswith("    ")
            was_literal = bool(found) and found[-1].startswith("    ")
            if is_literal and not was_literal:
                found += ["", "::", ""]
            elif was_literal and not is_literal:
                found.append("")
            found.append(f"    {line}" if is_literal else _escaped(line))
        found.append("    " if found and found[-1].startswith("    ") else "")
    lines[:] = [*found, "", *_fields(lines[end:]), ""]


def _fields(lines: list[str]) -> list[str]:
    """Return the sections of arguments and errors as fields."""
    found, field = [], ""
    for line in lines:
        field = _FIELDS.get(line.strip(), field)
        if match := re.match(r"  (\w+): (.*)", line):
            found.append(f":{field} {match[1]}: {_escaped(match[2])}")
        elif line.startswith("   "):
            found.append(f"    {_escaped(line.strip())}")
    return found


def _escaped(line: str) -> str:
    """Escape what reStructuredText would take for markup, except `code` and *emphasis*."""
    parts = re.split(r"(`[^`]+`|(?<!\w)\*\w[^*]*\*(?!\w))", line)
    for number, part in enumerate(parts):
        if not number % 2:
            parts[number] = re.sub(r"([*|`\\]|_(?=\W|$))", r"\\\1", part)
        elif part.startswith("`"):
            parts[number] = f"`{part}`"
    return "".join(parts)


def _skipped(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip fields of tuples, which the signature has, and methods that flax adds to records."""
    is_field = type(obj).__name__ == "_tuplegetter"
    is_flax = getattr(obj, "__module__", "") and str(obj.__module__).startswith("flax.")
    return True if is_field or is_flax else None


def _svg(node: nodes.Element, size: float, inline: bool) -> str:
    """Draw a formula as paths: no script, no font, and the colour of the text around it."""
    tex = node.astext()
    drawn = ziamath.Latex(tex, size=size, color="currentColor", inline=inline)
    if unknown := re.findall(r"\\\w+", drawn.mathmlstr()):
        _LOGGER.warning("unknown in a formula: %s", " ".join(unknown), location=node)
    style = f"vertical-align:{drawn.getyofst():.1f}px"
    label = html.escape(tex, quote=True)
    return drawn.svg().replace("<svg ", f'<svg role="img" aria-label="{label}" style="{style}" ', 1)


def _inline_math(self: Any, node: nodes.Element) -> None:
    self.body.append(_svg(node, size=15, inline=True))
    raise nodes.SkipNode


def _block_math(self: Any, node: nodes.Element) -> None:
    self.body.append(f'<div class="math-block">{_svg(node, size=17, inline=False)}</div>')
    raise nodes.SkipNode


def _dashes(app: Sphinx, document: nodes.document) -> None:
    """Write the dash of fields, the only one that would need smart quotes."""
    for text in [text for text in document.findall(nodes.Text) if text == " -- "]:
        text.parent.replace(text, nodes.Text(" – "))


def setup(app: Sphinx) -> None:
    """Add the directive of exports, and formulas that need nothing from the network."""
    ziamath.config.svg2 = True
    app.add_directive("exports", Exports)
    app.add_html_math_renderer("svg", (_inline_math, None), (_block_math, None))
    app.connect("autodoc-process-docstring", _docstring, priority=100)
    app.connect("autodoc-skip-member", _skipped)
    app.connect("doctree-read", _dashes)
