"""Whether the built site stands alone: each address leads somewhere, and nothing comes from a network.

python scripts/check_site.py build/site
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href")}


class Page(HTMLParser):
    """The places of a page, and the addresses in it with what they belong to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.addresses: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names and what it points to."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.places.add(value)
            elif name in ("href", "src") and value:
                self.addresses.append((tag, name, value))


def faults(site: Path) -> Iterator[str]:
    """Each address that leads nowhere, or that a browser would fetch from another host."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.resolve().rglob("*.html"))}
    for path, page in pages.items():
        for tag, name, address in page.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if (tag, name) in FETCHED and parts.scheme != "data":
                    yield f"{path}: <{tag}> fetches {address}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{path}: there is no {address}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                yield f"{path}: there is no place {address}"


if __name__ == "__main__":
    site = Path(sys.argv[1])
    found = list(faults(site))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} addresses to mend; the site begins at {site / 'index.html'}")
    sys.exit(bool(found))
