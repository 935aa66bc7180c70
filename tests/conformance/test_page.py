from pathlib import Path

from tests.conformance.page import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_about_the_language_says_what_the_rules_say() -> None:
    written = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert written == page(), "write it again: python -m tests.conformance.page > docs/language.md"
