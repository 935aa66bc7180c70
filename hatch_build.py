"""Puts the front-end of the widgets and the JupyterLab extension into what pip builds.

`KERNELAB_FRONT_END` is ``auto`` (the default: without node the package comes without them, and says so when a
tape is shown), ``require`` (fail instead: for releases) or ``skip``.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SCRIPT = Path("extension", "build.py")
EXTENSION = "extension/labextension"
PLACE = "share/jupyter/labextensions/kernelab"


class FrontEnd(BuildHookInterface[Any]):
    """Builds them before the files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run the script; a wheel made of an sdist finds everything built."""
        self.build()
        if self.target_name == "wheel" and Path(self.root, EXTENSION, "package.json").is_file():
            build_data["shared_data"][EXTENSION] = PLACE

    def build(self) -> None:
        """Build what is stale, as the mode says."""
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
