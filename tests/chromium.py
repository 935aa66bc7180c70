"""Where Chromium is on this machine, if it is; as a script, prints the path or fails.

Knows the places; must not know what the tests do with a browser.
"""

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of a Chromium: ``$CHROMIUM``, one on the path, or Playwright's own."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    installed = (shutil.which(name) for name in NAMES)
    return next((path for path in installed if path), None) or _playwrights_own()


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


if __name__ == "__main__":
    found = find_chromium()
    if found is None:
        sys.exit("no Chromium")
    print(found)
