"""The site: pages in Markdown, a reference from the docstrings, a gallery made by its own code."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.ext import autosummary

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "src"))

project = "Tacit"
author = "The Tacit developers"
copyright = "The Tacit developers, Apache-2.0"
version = release = importlib.import_module("tacit").__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["gallery", "**/*.ipynb"]

# Examples run in the tests; only the gallery runs here, since its pictures are its output.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3


def public_names(package: str) -> dict[str, str]:
    """Return what a package shows, each with the directive that documents it."""
    module = importlib.import_module(package)
    own = [name for name, value in vars(module).items() if inspect.getmodule(value) is module]
    listed = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    kinds = {}
    for name in listed:
        value = getattr(module, name)
        if inspect.isclass(value):
            kinds[name] = "exception" if issubclass(value, Exception) else "class"
        elif not inspect.ismodule(value):
            kinds[name] = "function" if inspect.isroutine(value) else "data"
    return kinds


INDEX = (DOCS / "reference" / "index.md").read_text("utf-8")
PACKAGES = re.findall(r"^ *(tacit[._][\w.]+)$", INDEX, re.M)
PUBLIC = {package: public_names(package) for package in PACKAGES}


def has_home_elsewhere(package: str, name: str) -> bool:
    """Say whether what a package shows is shown by its subpackage, or by the one it is made in."""
    value = getattr(importlib.import_module(package), name)
    module = f"{getattr(value, '__module__', None) or package}."
    others = (other for other in PACKAGES if other != package and name in PUBLIC[other])
    return any(
        other.startswith(f"{package}.")
        or (module.startswith(f"{other}.") and not module.startswith(f"{package}."))
        for other in others
    )


REPEATED = {
    package: [name for name in PUBLIC[package] if has_home_elsewhere(package, name)]
    for package in PACKAGES
}

# Names come from ``__all__``, since a lazy package has no members until they are asked for.
autosummary_generate = True
# Summaries are first sentences, and these do not end one.
autosummary.WELL_KNOWN_ABBREVIATIONS += ("Prop.", "Thm.", "Alg.", "Eq.", "Sec.", "App.", "Def.")
autosummary_context = {"public": PUBLIC, "repeated": REPEATED}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
add_module_names = False
default_role = "code"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "pictures",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 600,
    "reset_argv": lambda *_: [],
    "within_subsection_order": "FileNameSortKey",
}
suppress_warnings = ["config.cache"]  # a function in the gallery's settings cannot be pickled

# The format of stored releases, served as /schema/KIND.json.
SCHEMAS = DOCS.parent / "build" / "schemas"
importlib.import_module("tacit.releases.schema").write_schemas(SCHEMAS / "schema")
html_extra_path = [str(SCHEMAS)]

html_theme = "pydata_sphinx_theme"
html_title = "Tacit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "Tacit"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navigation_depth": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}


def read_docstring(*event: Any) -> None:
    """Link the pages a docstring names, and take its bars for absolute values."""
    lines: list[str] = event[-1]
    for number, line in enumerate(lines):
        linked = re.sub(r"`?\bdocs/([\w/-]+)\.md`?", r":doc:`/\1`", line)
        parts = linked.split("``")  # every second one is a literal
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        lines[number] = "``".join(parts)


def is_of_another_library(*event: Any) -> bool | None:
    """Leave out what a class inherits from another library, whose pages describe it."""
    held = event[3]
    held = getattr(held, "fget", getattr(held, "__func__", held))
    module = getattr(held, "__module__", None)
    outside = isinstance(module, str) and module.split(".")[0] in ("transformers", "torch")
    return True if outside else None


def every_name_is_there(app: Any, error: Exception | None) -> None:
    """Refuse a reference that lacks a public name."""
    if error is None:
        known = app.env.domaindata["py"]["objects"]
        named = [
            f"{package}.{name}"
            for package, names in PUBLIC.items()
            for name in names
            if name not in REPEATED[package]
        ]
        missing = [name for name in named if name not in known]
        if missing:
            raise ValueError(f"reference: public names without an entry: {', '.join(missing)}")


def setup(app: Any) -> None:
    """Connect the handlers."""
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-skip-member", is_of_another_library)
    app.connect("build-finished", every_name_is_there)
