"""The IPython extension: ``%load_ext kernelab`` and how it is unloaded.

The only package that may import IPython and the notebook's libraries.
"""

import warnings
from typing import Any

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from kernelab import hooks
from kernelab.backend.common import interrupts
from kernelab.errors import Diagnostic, KernelWarning, Source
from kernelab.frontend.meaning.name_lookup import sound
from kernelab.jupyter.after_cell import Mistakes, Watch
from kernelab.jupyter.channel import Channel
from kernelab.jupyter.inspection import Inspector, explain, explain_in_html, matcher
from kernelab.jupyter.magics import CHOICES, MISSPELT, OPTIONS, KernelMagics, misspelt, not_first, tell
from kernelab.runtime.context.recorder import RECORDER
from kernelab.views.pages.display import warning_lines

HOOKS = {"text/plain": explain, "text/html": explain_in_html}
"""How IPython's inspector tells of kernels, by MIME type."""

LEFT_OPEN = Diagnostic(
    "this cell ended while a tape was open: it is closed now, and records no more",
    code="left-open",
    severity="warning",
    hint="run the cell again, with a new tape",
)
"""An interrupt may strike where Python has not entered a `with` block yet, or has left it already."""


class Extension:
    """Everything that one shell was given, and what was there before."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.magics = KernelMagics(shell)
        self.matcher = matcher(OPTIONS, CHOICES, shell.user_ns)
        kernel = getattr(shell, "kernel", None)
        self.inspector = None if kernel is None else Inspector(kernel)
        self.watch = Watch()
        self.mistakes = Mistakes()
        self.channel = Channel(shell)
        builds = self.magics.builds
        self.callbacks = (
            *(("pre_run_cell", self.begin), ("post_run_cell", self.look)),
            *(("pre_run_cell", builds.stop), ("post_run_cell", builds.start)),
        )
        self.hooks_before = shell.inspector.mime_hooks
        self.format_before = warnings.formatwarning

    def install(self) -> None:
        self.shell.register_magics(self.magics)
        self.shell.magics_manager.register_function(not_first, "line", "%kernel")
        for name in MISSPELT:
            self.shell.magics_manager.register_function(misspelt, "cell", name)
        self.shell.Completer.custom_matchers.append(self.matcher)
        if self.inspector is not None:
            self.inspector.install()
        self.channel.install()
        self.shell.inspector.mime_hooks = {**HOOKS, **self.hooks_before}
        for event, callback in self.callbacks:
            self.shell.events.register(event, callback)
        self.begin()
        warnings.formatwarning = self.format

    def remove(self) -> None:
        self.shell.magics_manager.registry.pop(type(self.magics).__name__, None)
        for name in ("kernel", *MISSPELT):
            self.shell.magics_manager.magics["cell"].pop(name, None)
        self.shell.magics_manager.magics["line"].pop("%kernel", None)
        self.shell.Completer.custom_matchers.remove(self.matcher)
        self.channel.remove()
        if self.inspector is not None:
            self.inspector.remove()
        self.shell.inspector.mime_hooks = self.hooks_before
        self.magics.builds.stop()
        for event, callback in self.callbacks:
            self.shell.events.unregister(event, callback)
        interrupts.leave_notebook()
        if warnings.formatwarning == self.format:
            warnings.formatwarning = self.format_before

    def begin(self, *_: object) -> None:
        """Note which threads there are before a cell runs, and what records."""
        interrupts.cell_begins()
        self.recorder = RECORDER.get()

    def look(self, result: ExecutionResult) -> None:
        """Point out wrong rules, what changed under kernels, and what a mistake left, after each cell."""
        if isinstance(result.error_in_exec, KeyboardInterrupt):
            interrupts.cell_was_interrupted()
        if result.error_in_exec is not None and RECORDER.get() is not self.recorder:
            RECORDER.set(self.recorder)
            tell([LEFT_OPEN])
        names = sound(self.shell.user_ns)
        for kernel in self.magics.rules.kernels(names):
            hooks.check_rules(kernel.laid_out)
        tell(self.watch.look(names))
        text = Source(getattr(result.info, "raw_cell", None) or "", f"Cell In[{result.execution_count}]", 1)
        self.channel.look(result)
        tell(self.mistakes.look(text, result.error_before_exec or result.error_in_exec, names))

    def format(self, message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> str:
        """Our warnings name the user's line themselves: the line of ours that issued them is left out."""
        if issubclass(category, KernelWarning):
            return "\n".join(warning_lines(category.__name__, str(message))) + "\n"
        return self.format_before(message, category, *place, **named)


_NAME = "_kernelab_extension"


def load(shell: InteractiveShell) -> None:
    """Give a shell the magic, completion and inspection; a shell that has them stays as it is."""
    if getattr(shell, _NAME, None) is None:
        extension = Extension(shell)
        extension.install()
        setattr(shell, _NAME, extension)


def unload(shell: InteractiveShell) -> None:
    """Take away everything that `load` gave."""
    extension: Extension | None = getattr(shell, _NAME, None)
    if extension is not None:
        extension.remove()
        setattr(shell, _NAME, None)
