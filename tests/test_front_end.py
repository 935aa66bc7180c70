"""The front-end in TypeScript: its own tests, what the bundle weighs, and what happens without node."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import words

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "extension" / "build.py"


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("front_end_build", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tests_of_the_front_end_pass(front_end: Path) -> None:
    ran = subprocess.run(
        ["npm", "test"], cwd=ROOT / "extension", capture_output=True, text=True, check=False, timeout=200
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_bundle_is_small_and_reaches_for_no_network(front_end: Path) -> None:
    script = (front_end / "tape.js").read_text(encoding="utf-8")
    style = (front_end / "tape.css").read_text(encoding="utf-8")
    assert len(script) + len(style) < 150_000
    assert "import(" not in script
    for text in (script, style):
        assert "https://" not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_extension_is_small_and_carries_no_copy_of_what_jupyterlab_shares(front_end: Path) -> None:
    folder = ROOT / "extension" / "labextension"
    written = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    assert (folder / written["jupyterlab"]["_build"]["load"]).is_file()
    scripts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.js")]
    assert sum(map(len, scripts)) < 300_000
    assert not any("EditorView.theme" in script for script in scripts)


def test_the_extension_highlights_the_words_of_this_language() -> None:
    written = (ROOT / "extension" / "src" / "lab" / "words.json").read_text(encoding="utf-8")
    assert written == words.page(), (
        "write it again: python -m tests.support.words > extension/src/lab/words.json"
    )


def test_a_bundle_of_other_sources_is_stale(
    front_end: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = loaded()
    monkeypatch.setattr(build, "MARK", tmp_path / "mark")
    assert build.is_stale()
    build.MARK.write_text(build.digest())
    assert not build.is_stale()
    build.MARK.write_text("another")
    assert build.is_stale()


@pytest.mark.parametrize(("mode", "status"), [("auto", 0), ("require", 1)])
def test_without_node_an_install_goes_on_unless_it_may_not(tmp_path: Path, mode: str, status: int) -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    for name in ("package.json", "package-lock.json", "tsconfig.json"):
        (tmp_path / "extension" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "extension" / name).write_text("{}")
    (tmp_path / "extension" / "src").mkdir()
    (tmp_path / "extension" / "build.py").write_text(text)
    command = [sys.executable, str(tmp_path / "extension" / "build.py"), mode]
    ran = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    assert "there is no node with npm" in ran.stderr
