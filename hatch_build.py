"""Puts the front-end of the widgets into what pip builds, where node is there to make it.

`KERNELAB_FRONT_END` is ``auto`` (the default: without node the package comes without it, and says so when a
tape is shown), ``require`` (fail instead: for releases) or ``skip``.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SCRIPT = Path("extension", "build.py")


class FrontEnd(BuildHookInterface[Any]):
    """Builds it before the files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run the script; a wheel made of an sdist finds everything built."""
        mode = os.environ.get("KERNELAB_FRONT_END", "auto")
        script = Path(self.root, SCRIPT)
        if mode == "skip" or not script.is_file():
            return
        ran = subprocess.run(
            [sys.executable, str(script), mode], stderr=subprocess.PIPE, text=True, check=False
        )
        if ran.stderr:
            self.app.display_warning(ran.stderr)
        if ran.returncode:
            raise RuntimeError(ran.stderr)
