"""The pages: no link leads nowhere, every name exists, the reference shows what is public."""

import importlib
import importlib.util
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import tacit

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("experiments/*/*.md")]
)
REFERENCE = set(
    re.findall(r"^ +(tacit[._][\w.]+)$", (DOCS / "reference" / "index.md").read_text("utf-8"), re.M)
)
# What runs the command, algebra and wording that only packages of Tacit use.
INTERNAL = {"tacit.cli", "tacit.databases", "tacit.documents", "tacit.linalg", "tacit.text"}
# Groups of entry points, which are no modules.
ENTRY_POINTS = {"tacit.kinds", "tacit.commands"}
# The site writes these folders.
BUILT = ("pictures/", "packages/")


def prose(text):
    """Return a page without its code."""
    return re.sub(r"```.*?```", "", text, flags=re.S)


def anchors(page):
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page.read_text("utf-8")), re.M)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    source = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(source.read_text("utf-8"))):
        if re.match(r"https?:", target) or target.startswith(BUILT):
            continue
        path, _, anchor = target.partition("#")
        found = source if not path else source.parent / path
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("page", PAGES)
def test_named_pages_exist(page):
    for name in re.findall(r"docs/[\w/-]+\.(?:md|svg|png)", (ROOT / page).read_text("utf-8")):
        assert (ROOT / name).exists(), name


def test_pages_named_in_the_code_exist():
    for path in (ROOT / "src").rglob("*.py"):
        for name in re.findall(r"docs/[\w/-]+\.md", path.read_text("utf-8")):
            assert (ROOT / name).exists(), (path, name)


EXTRAS = {
    "tacit.stores.langchain": "langchain_core",
    "tacit.stores.llamaindex": "llama_index",
    "tacit.stores.haystack": "haystack",
}


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_library_exist(page):
    for name in set(re.findall(r"`(tacit(?:\.\w+)+)`", prose((ROOT / page).read_text("utf-8")))):
        if name in ENTRY_POINTS:
            continue
        holder, _, last = name.rpartition(".")
        package = EXTRAS.get(holder)
        if package is not None and importlib.util.find_spec(package) is None:
            # what stands beside a package that is not installed here is looked up in its file
            text = (ROOT / "src" / f"{holder.replace('.', '/')}.py").read_text("utf-8")
            assert re.search(rf"^(class|def) {last}\b", text, re.M), name
            continue
        module = importlib.import_module(holder)
        assert hasattr(module, last) or importlib.util.find_spec(name), name


def test_every_page_is_in_the_contents():
    for folder in ("tutorials", "how-to", "explanation"):
        listed = (DOCS / folder / "index.md").read_text("utf-8")
        for page in (DOCS / folder).glob("*.md"):
            assert page.stem == "index" or re.search(rf"^{page.stem}$", listed, re.M), page


def test_the_reference_lists_every_public_package():
    for name in REFERENCE:
        importlib.import_module(name)
    top = {f"tacit.{found.name}" for found in pkgutil.iter_modules(tacit.__path__)}
    public = {name for name in top if "._" not in name} - INTERNAL
    assert public - REFERENCE == set()
    source = ROOT / "src"
    stubs = {
        ".".join(stub.relative_to(source).parent.parts)
        for stub in source.glob("tacit*/**/__init__.pyi")
    }
    assert stubs - REFERENCE == {"tacit"}


def test_every_term_of_the_glossary_is_defined_once():
    text = (DOCS / "explanation" / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^## (.+)$", text, re.M)
    assert len(terms) == len(set(terms)) > 30


# Own words that a reader meets as nouns, with the forms in which they are met.
OWN_WORDS = {"law": r"laws?", "pool": r"pools?", "bank": r"banks?"}
# The glossary defines them; a study's page is written by its program, the commands' by theirs.
DEFINING = ("glossary.md", "reproductions.md", "papers.md", "command-line.md")
NO_PROSE = re.compile(
    r"```.*?```|``.+?``|`[^`\n]*`|\]\([^)]*\)|^#[^\n]*$|\$[^$\n]+\$|<[^>\n]+>", re.S | re.M
)


def words_of_the_field():
    """Return the glossary's table: our word, and the field's."""
    text = (DOCS / "explanation" / "glossary.md").read_text("utf-8")
    table = text.partition("| ours | the field's |\n|---|---|\n")[2].partition("\n\n")[0]
    return dict(row.strip("| ").split(" | ") for row in table.splitlines())


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("docs", "README"))])
def test_an_own_word_has_the_word_of_the_field_at_its_first_use(page):
    if page.endswith(DEFINING):
        return
    told = " ".join(NO_PROSE.sub(" ", (ROOT / page).read_text("utf-8")).split())
    field = words_of_the_field()
    for own, forms in OWN_WORDS.items():
        # a genitive is no first use that brackets can stand behind
        first = re.search(rf"(?<![\w-])(?:{forms})(?![\w'’-])", told)
        assert first is None or told[first.end() :].startswith(f" ({field[own]}"), (page, own)


def test_every_install_line_names_this_distribution_or_a_path():
    """On the public index ``tacit`` is another package: nobody is sent there."""
    places = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *DOCS.rglob("*.md")]
    places += [*(ROOT / "src").rglob("*.py"), *ROOT.glob(".ci/*"), *ROOT.glob("benchmarks/*.py")]
    wrong = re.compile(
        r"(?:pip3?|uv|pipx)(?: pip)? (?:install|add)[^\n#`]*[\s'\"=]tacit(?![-_/\w])"
    )
    lines = [
        (place.relative_to(ROOT), line)
        for place in places
        for line in place.read_text("utf-8").splitlines()
        if wrong.search(line)
    ]
    assert not lines
    assert wrong.search("pip install 'tacit[llm]'")
    assert not wrong.search("pip install 'tacit-privacy[llm]'")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_asks_for_torch_says_its_size_and_the_build_for_a_cpu(page):
    text = (ROOT / page).read_text("utf-8")
    if re.search(r"pip install '(?:tacit-privacy|\.)\[[^\]]*(?:llm|torch|stores)", text):
        assert "running.md#extras" in text or "whl/cpu" in text


def test_the_citation_names_the_version_that_is_installed() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"]
    assert cited["abstract"] == project["description"]
