from pathlib import Path

from tests.conformance import messages
from tests.conformance.page import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_about_the_language_says_what_the_rules_say() -> None:
    written = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert written == page(), "write it again: python -m tests.conformance.page > docs/language.md"


def test_the_page_of_messages_has_what_is_said_now() -> None:
    written = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    assert written == messages.page(), (
        "write it again: python -m tests.conformance.messages > docs/messages.md"
    )
