"""The documentation site: its navigation holds every page, and links between pages lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import kernelab as kl
from kernelab.lang.types import named_types

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BUILT = {ROOT / name for name in re.findall(r" > (docs/\w+\.md)$", MAKEFILE, re.MULTILINE)}
"""The pages that `make docs` writes from the package."""
FOUND = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
PAGES = sorted(page for page in FOUND if page not in BUILT)
_FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _prose(page: Path) -> str:
    return _FENCES.sub("", page.read_text(encoding="utf-8"))


def _navigation() -> Iterator[Path]:
    index = ROOT / "docs" / "index.md"
    for tree in re.findall(
        r"^```\{toctree\}\n(.*?)^```$", index.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        for line in tree.splitlines():
            entry = re.sub(r".*<(.*)>", r"\1", line)
            if entry and not entry.startswith(":"):
                written = {index.parent / f"{entry}.md"} & BUILT
                found = written or [
                    path for suffix in (".md", ".ipynb") for path in index.parent.glob(entry + suffix)
                ]
                assert found, f"the navigation names {entry}, and there is none"
                yield from (path.resolve() for path in found)


def test_each_page_and_notebook_is_once_in_the_navigation() -> None:
    entries = sorted(_navigation())
    notebooks = (ROOT / "notebooks").rglob("*.ipynb")
    pages = [page for page in (*PAGES, *BUILT, *notebooks) if page != ROOT / "docs" / "index.md"]
    assert entries == sorted(page for page in pages if ".ipynb_checkpoints" not in page.parts)


def test_links_between_pages_lead_to_files() -> None:
    gone = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(
            r"(?<!\\)\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"(`+).+?\1", "", _prose(page))
        )
        if ":" not in target and not (page.parent / target).exists()
    ]
    assert gone == []


def test_files_that_pages_name_exist() -> None:
    named = re.compile(r"`((?:docs|notebooks|benchmarks|tests|scripts|kernelab)/[\w./-]+\.\w+)`")
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for name in named.findall(_prose(page))
        if not (ROOT / name).exists() and ROOT / name not in BUILT
    ]
    assert gone == []


def test_pages_that_are_built_are_not_in_the_repository() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {ROOT / "docs" / "builtins.md", ROOT / "docs" / "modules.md"} == BUILT
    assert {page.relative_to(ROOT).as_posix() for page in BUILT} <= {*ignored}


def test_the_tests_of_the_contract_exist() -> None:
    named = re.findall(
        r"`(test_\w+\.py)`", (ROOT / "docs" / "gradient-contract.md").read_text(encoding="utf-8")
    )
    assert named
    assert [name for name in named if not (ROOT / "tests" / "contract" / name).exists()] == []


def test_the_tests_that_the_readme_names_exist() -> None:
    named = re.findall(r"\| \[([a-z ]+)\]\((tests/\S+\.py)\) \|$", _prose(ROOT / "README.md"), re.MULTILINE)
    assert len(named) > 10
    gone = [
        name
        for name, file in named
        if f"def test_{name.replace(' ', '_')}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert gone == []


def test_each_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "api" / "kernelab.md").read_text(encoding="utf-8")
    ranks = {f"{kind}{rank}d" for kind in ("array", "indexedarray") for rank in (1, 2, 3, 4)}
    described = set(re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE)) | set(
        re.findall(r"`(?:@kl\.)?(\w+)`", text)
    )
    assert set(kl.__all__) - ranks - {*named_types()} - described == set()
