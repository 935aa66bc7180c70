"""Settings of the documentation site, which `make docs` builds from pages and notebooks where they stand."""

import re
from pathlib import Path
from textwrap import indent
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx

import kernelab

project = "kernelab"
copyright = "the kernelab developers"
version = release = kernelab.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "benchmarks/*.md", "notebooks/**.ipynb"]
exclude_patterns = [".*", "build", "dist", "extension", "tests", "**/.ipynb_checkpoints"]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"  # Notebooks are shown with the outputs that are stored in them.
suppress_warnings = ["misc.highlighting_failure"]  # Errors that notebooks show are text, not tracebacks.
highlight_language = "none"  # A fence without a language is a kernel cell, or what a program shows.

default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 90

# Nothing is fetched from another host: fonts are those of the reader, formulas are MathML.
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "kernelab"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # It reads other pages, which a browser refuses to pages of a folder.


def _mathml(self: Any, node: nodes.Element) -> None:
    display = isinstance(node, nodes.math_block)
    tree = latex2mathml.tex2mathml(node.astext().replace(r"\dots", r"\ldots"), as_block=display)
    self.body.append(f'<div class="math">{tree}</div>' if display else tree)
    raise nodes.SkipNode


def _link_named_pages(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make a link of each page that a text names by its file: `docs/tape.md` in code."""
    for literal in list(doctree.findall(nodes.literal)):
        page, dot, suffix = literal.astext().rpartition(".")
        if not dot or suffix not in ("md", "ipynb") or isinstance(literal.parent, nodes.reference):
            continue
        if page in app.env.found_docs and app.builder.format == "html":
            address = app.builder.get_relative_uri(docname, page)
            literal.replace_self(nodes.reference("", "", literal.deepcopy(), refuri=address, internal=True))


def _keep_layout(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Show what is indented in a docstring as it is written, and names in columns as definitions."""
    shown: list[str] = []
    literal = False
    for paragraph in "\n".join(lines).split("\n\n"):
        columns = re.match(r"(\S.*?) {3,}\S", paragraph)
        if columns and columns[1].isidentifier():
            paragraph = re.sub(
                r"^(\w+) {3,}", r"\1\n    ", re.sub(r"^ +", "    ", paragraph, flags=re.M), flags=re.M
            )
            literal = False
        elif columns or paragraph.startswith("    "):
            shown += [] if literal else ["::"]
            paragraph, literal = indent(paragraph, "    "), True
        else:
            literal = False
        shown.append(paragraph)
    lines[:] = [*"\n\n".join(shown).split("\n"), ""]


def _begin_at_the_root(app: Sphinx, error: Exception | None) -> None:
    """Send who opens the folder to the first page."""
    if error is None and app.builder.format == "html":
        start = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        Path(app.outdir, "index.html").write_text(start, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect what this file adds."""
    app.add_html_math_renderer("mathml", (_mathml, None), (_mathml, None))
    app.connect("autodoc-process-docstring", _keep_layout)
    app.connect("doctree-resolved", _link_named_pages)
    app.connect("build-finished", _begin_at_the_root)
