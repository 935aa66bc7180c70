"""The ``%%kernel`` cell magic: compiles the cell, defines its names in the notebook, shows its kernels.

They are built while the notebook waits for the next cell, primals first, then adjoints, one at a time.  What
has not begun when a cell runs waits until that has ended; a launch that needs it builds it at once.
Knows IPython's magics and displays; what is compiled, refused or shown is decided elsewhere.
"""

# IPython's decorators for the options of a magic have no types.
# mypy: allow-untyped-decorators, allow-untyped-calls

import __future__

import ast
import asyncio
import re
from argparse import ArgumentTypeError, Namespace
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from kernelab.autodiff.rule_checks.rule_check import leave_unchecked
from kernelab.backend.common.tiered import LULL, Pending
from kernelab.errors import Diagnostic, Source
from kernelab.frontend.definitions.definitions import CHECKS
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.name_lookup import sound
from kernelab.frontend.meaning.syntax_trees import module_of
from kernelab.jupyter.after_cell import Rules
from kernelab.lang.ir import called
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.program import Program
from kernelab.runtime.kernel.texts import Compiled, compile_source
from kernelab.runtime.memory.device import get_device
from kernelab.runtime.ops.function_calls import stated_kernel
from kernelab.settings import settings
from kernelab.views.kernel.code_view import DEFAULT, PANES
from kernelab.views.kernel.kernel_facts import function_view, refusal, view
from kernelab.views.pages.display import View, warning_lines
from kernelab.warp.names import OPTIONS as IDLE
from kernelab.warp.names import UNUSED


def running_cell(shell: InteractiveShell, line: str, body: str) -> tuple[Source, str]:
    """The text of the cell whose magic is running, and the file name that Python gives the cell.

    `line` has its options, `body` the text below them.  Afterwards tracebacks and `inspect` find the text as
    typed under the cell's file name.
    """
    raw = _as_typed(shell, line, body)
    above = raw[: len(raw) - len(body.rstrip("\n"))].count("\n") if body.strip() else 1
    number = _number(shell, raw)
    return Source(body, f"Cell In[{number}]", above + 1), shell.compile.cache(raw, number, raw_code=raw)


def remember_python(text: Source, filename: str, definitions: Mapping[str, Any]) -> None:
    """Register a cell's text, so that `inspect.getsource`, ``name??`` and signatures find it.

    They look for a Python function: one is made of the same text under the cell's file name, never called.
    """
    if not definitions:
        return
    for node in ast.increment_lineno(module_of(text.text), text.first_line - 1).body:
        if isinstance(node, ast.FunctionDef) and node.name in definitions:
            definition = definitions[node.name]
            definition.__wrapped__ = _function(node, filename)
            definition.__doc__ = ast.get_docstring(node) or definition.__doc__


def _function(node: ast.FunctionDef, filename: str) -> Any:
    """The function of a def, without its decorators and defaults: they may mean something to kernels only."""
    node.decorator_list = []
    node.args.defaults = [ast.Constant(...) for _ in node.args.defaults]
    node.args.kw_defaults = [default and ast.Constant(...) for default in node.args.kw_defaults]
    module = ast.fix_missing_locations(ast.Module([node], []))
    code = compile(module, filename, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
    return names[node.name]


def _as_typed(shell: InteractiveShell, line: str, body: str) -> str:
    """The text that the front end sent: the magic sees neither its own line nor blank lines above it."""
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    code = str(parent.get("content", {}).get("code", "")).rstrip("\n")
    if re.match(r"\s*%%", code) and code.endswith(body.rstrip("\n")):
        return code
    return f"%%kernel {line}".rstrip() + "\n" + body.rstrip("\n")


def _number(shell: InteractiveShell, raw: str) -> int:
    """The number of the running prompt.

    The counter itself may be one ahead: since IPython 9 it is raised before the cell runs.  What the cell was
    registered with when it began is right in every version.
    """
    registered: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    name = shell.compile.get_code_name(raw, raw, shell.execution_count)
    return int(registered.get(name) or max(registered.values(), default=shell.execution_count))


# ----------------------------------------------------------------------------------------------------- builds


def derived(kernel: Kernel) -> Iterator[Program]:
    """The programs that a recorded launch and its adjoint need beside the primal, derived when asked for."""
    active = kernel.differentiable
    if active and not refusal(kernel):
        pullback = kernel.program.pullback(kernel.positions(active))
        if pullback.residuals:
            yield pullback.primal
        yield pullback.adjoint


class IdleBuilds:
    """The kernels of a notebook that are left to build, and the timer that begins the next build."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self._left: deque[tuple[str, Kernel, Iterator[Program]]] = deque()
        self._pending: Pending[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def add(self, kernels: Mapping[str, Kernel]) -> None:
        """Build these kernels of a cell, by name, when the notebook waits."""
        self._left.extend((name, kernel, iter([kernel.program])) for name, kernel in kernels.items())
        self._left.extend((name, kernel, derived(kernel)) for name, kernel in kernels.items())

    def stop(self, *_: object) -> None:
        """Begin nothing more: a cell runs."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def start(self, *_: object) -> None:
        """Go on in a moment, unless another cell runs by then, as in a notebook that runs in batch."""
        self.stop()  # a cell may run another one
        chosen = settings()
        if chosen.idle_builds and chosen.live_tapes:
            self._wait(LULL)

    def _wait(self, seconds: float) -> None:
        if self._left:
            with suppress(RuntimeError):  # in a terminal nothing would run what is put off
                self.timer = asyncio.get_running_loop().call_later(seconds, self._step)

    def _step(self) -> None:
        self.timer = None
        if self._pending is None or self._pending.is_done:
            self._pending = self._begin()
        self._wait(LULL / 10)

    def _begin(self) -> Pending[Any] | None:
        """Begin the next build; kernels that the notebook has not any more are left out."""
        while self._left:
            name, kernel, programs = self._left[0]
            program = next(programs, None) if self.shell.user_ns.get(name) is kernel else None
            if program is not None:
                return program.build_ahead(get_device().space)
            self._left.popleft()
        return None


# ----------------------------------------------------------------------------------------------------- magics


OPTIONS = (
    *("--show", "--quiet", "--device", "--check", "--no-check", "--no-backward", "--fast-math"),
    "--max-unroll",
)
EVERYTHING, NOTHING = "all", "none"
CHOICES: dict[str, Sequence[str]] = {
    "--show": (*PANES, EVERYTHING, NOTHING),
    "--device": ("cpu",),
    "--check": CHECKS,
}


def panes(text: str) -> tuple[str, ...]:
    """The panes that ``--show`` names: ``source,cpp``, ``all`` or ``none``."""
    names = {name.strip() for name in text.split(",")}
    unknown = sorted(names.difference(CHOICES["--show"]))
    if unknown:
        raise ArgumentTypeError(f"there is no {' and no '.join(unknown)}; say {', '.join(CHOICES['--show'])}")
    return tuple(name for name in PANES if name in names or EVERYTHING in names)


def parsed(magic: Any, line: str) -> Namespace:
    """The options of a magic's line; raises UsageError that lists those there are."""
    try:
        options: Namespace = parse_argstring(magic, line)
    except UsageError as error:
        near: list[str] = []
        for word in line.replace(",", " ").split():
            words = OPTIONS if word.startswith("-") else CHOICES["--show"]
            near += [] if word in words else get_close_matches(word, words, 1, 0.7)
        guess = f"; did you mean {' and '.join(near)}?" if near else ""
        raise UsageError(
            f"{error}{guess}; the options are {', '.join(OPTIONS)} (%%kernel? explains them)"
        ) from None
    return options


def without_effect(options: Namespace) -> list[Diagnostic]:
    """The warnings for options that change nothing."""
    return [
        Diagnostic(f"{option} changes nothing here: {UNUSED[name]}", code="option", severity="information")
        for name, option in IDLE.items()
        if getattr(options, name) not in (None, False)
    ]


@magics_class
class KernelMagics(Magics):
    """``%%kernel``."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.rules = Rules()
        self.builds = IdleBuilds(shell)

    @magic_arguments(name="%kernel")
    @argument(
        "--show",
        metavar="WHAT",
        type=panes,
        default=DEFAULT,
        help=f"the panes, with commas: {', '.join(PANES)}, all or none",
    )
    @argument("--quiet", action="store_true", help="show nothing but mistakes and warnings")
    @argument(
        "--device",
        metavar="NAME",
        help="build machine code for this device at once (cpu), not at the first launch",
    )
    @argument(
        "--check",
        metavar="full",
        choices=CHECKS,
        help="run each launch of these kernels on copies first, to find races, reads of what was never "
        "written, and the line where a value turns NaN or infinite (kl.config.check: of all kernels)",
    )
    @argument(
        "--no-check",
        action="store_true",
        help="do not compare custom derivatives of the functions that are called here with differences",
    )
    @argument(
        "--no-backward",
        action="store_true",
        help="derive no adjoint: a gradient that would pass through these kernels is an error",
    )
    @argument("--fast-math", action="store_true", help=f"accepted, changes nothing: {UNUSED['fast_math']}")
    @argument(
        "--max-unroll", metavar="N", type=int, help=f"accepted, changes nothing: {UNUSED['max_unroll']}"
    )
    @cell_magic
    def kernel(self, line: str, cell: str) -> None:
        """Compile the functions of this cell: kernels, and functions for kernels.

        Every `def` whose parameters carry types is compiled when the cell runs, and its name lands in the
        notebook.  One that returns nothing is a kernel: `kl.launch(name, dim=n, inputs=[...])` or
        `name[n](...)` runs it once for each thread of a grid.
        """
        assert isinstance(self.shell, InteractiveShell)
        options = parsed(self.kernel, line)
        choices: dict[str, Any] = {"enable_backward": False} if options.no_backward else {}
        choices |= {"check": options.check} if options.check else {}
        compiled = compile_cell(self.shell, *running_cell(self.shell, line, cell), choices)
        every = ((name, one) for name, one in compiled.definitions.items() if isinstance(one, Kernel))
        named = {name: kernel for name, kernel in every if not kernel.is_generic}
        kernels = [*named.values()]
        tell(without_effect(options))
        if options.no_check:
            for kernel in [*kernels, *self.rules.kernels(sound(self.shell.user_ns))]:
                leave_unchecked(kernel.laid_out)
        if options.device is not None and get_device(options.device).is_cpu:
            for program in chain.from_iterable((kernel.program, *derived(kernel)) for kernel in kernels):
                _ = program.entry
        self.builds.add(named)
        if not options.quiet and options.show:
            for kernel in kernels:
                display(View(view(kernel, options.show)))
            for function in uncalled(compiled.definitions.values(), kernels):
                display(View(function_view(function, options.show)))
        compiled.lowered.raise_errors()


def uncalled(definitions: Iterable[Any], kernels: Sequence[Kernel]) -> list[UserFunction]:
    """The functions with a view that no kernel and no other function of the cell calls and shows, too."""
    functions = {one: stated_kernel(one) for one in definitions if isinstance(one, UserFunction)}
    spans = {each.span for kernel in kernels for each in called(kernel.definition.function)}
    for one, kernel in functions.items():
        if isinstance(kernel, Kernel):
            spans |= {each.span for each in called(kernel.definition.function)} - {one.span}
    return [one for one, kernel in functions.items() if isinstance(kernel, Kernel) and one.span not in spans]


def not_first(line: str) -> None:
    """What ``%%kernel`` below another line runs: IPython takes it for the line magic ``%kernel`` there."""
    raise UsageError(FIRST_LINE)


MISSPELT = ("Kernel", "kernels")
NAME = "the magic is written %%kernel, in lower case and without an s"


def misspelt(line: str, cell: str) -> None:
    """What ``%%Kernel`` and ``%%kernels`` run."""
    raise UsageError(NAME)


FIRST_LINE = (
    "%%kernel must be the first line of its cell, with two signs: "
    "put comments below it, and Python into another cell"
)


def compile_cell(
    shell: InteractiveShell, text: Source, filename: str, choices: Mapping[str, Any]
) -> Compiled:
    """Compile a cell into the notebook's names, with options of the `kernel` decorator; tell its notes.

    What has no mistake lands even if something else has one: the mistakes are left to be raised.
    """
    compiled = compile_source(text, shell.user_ns, **choices)
    remember_python(text, filename, compiled.definitions)
    shell.user_ns.update(compiled.lowered.assigned | compiled.definitions)
    tell(compiled.lowered.diagnostics)
    return compiled


def tell(diagnostics: Sequence[Diagnostic]) -> None:
    """Show warnings and informations under the cell."""
    for diagnostic in diagnostics:
        lines = warning_lines(diagnostic.severity, diagnostic.render())
        display({"text/plain": "\n".join(lines)}, raw=True)
