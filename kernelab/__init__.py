"""kernelab: interactive differentiable programming for Jupyter.

    import kernelab as kl

The types and operations of the kernel language are names of this module too: ``kl.vec3``, ``kl.sin``.
"""

import sys as _sys
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from kernelab import _load as _load
from kernelab import func
from kernelab.autodiff.tape.checkpoint import checkpoint
from kernelab.autodiff.tape.tape import Tape
from kernelab.builtins.records.table import Builtin as _Builtin
from kernelab.errors import (
    BuildError,
    GradientError,
    KernelAssertionError,
    KernelAttributeError,
    KernelError,
    KernelIndexError,
    KernelInterrupt,
    KernelKeyError,
    KernelMemoryError,
    KernelNameError,
    KernelRaceError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    KernelWarning,
    KernelZeroDivisionError,
    LaunchError,
    NotFiniteError,
    TapeError,
)
from kernelab.errors import Diagnostic as _Diagnostic
from kernelab.frontend.definitions.functions import UserFunction as Function
from kernelab.guidance.bad_calls import telling as _telling
from kernelab.guidance.offers import missing as _missing
from kernelab.host.constants import BARE as _BARE
from kernelab.host.constants import CONSTANTS as _CONSTANTS
from kernelab.runtime.array.host_annotations import ref
from kernelab.runtime.context.conversion import described as _described
from kernelab.runtime.host.create import (
    array,
    array1d,
    array2d,
    array3d,
    array4d,
    clone,
    copy,
    empty,
    empty_like,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from kernelab.runtime.host.foreign import (
    device_from_torch,
    device_to_torch,
    dtype_from_numpy,
    dtype_from_torch,
    dtype_to_numpy,
    dtype_to_torch,
    from_ptr,
    from_torch,
    to_dlpack,
    to_torch,
)
from kernelab.runtime.host.host_words import AdjointWord as _AdjointWord
from kernelab.runtime.host.host_words import Word as _Word
from kernelab.runtime.host.host_words import constant, static
from kernelab.runtime.host.host_words import names as _language_names
from kernelab.runtime.host.host_words import word as _word
from kernelab.runtime.kernel.decorators import (
    compile,
    func_grad,
    func_jvp,
    func_native,
    func_replay,
    kernel,
    overload,
    struct,
)
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.launch.capture import Graph, ScopedCapture, capture_begin, capture_end, capture_launch
from kernelab.runtime.launch.checked import find_races
from kernelab.runtime.launch.command import Launch
from kernelab.runtime.launch.launch import launch
from kernelab.runtime.launch.scoped import (
    ScopedDevice,
    ScopedTimer,
    get_preferred_device,
    is_cpu_available,
    is_cuda_available,
    set_device,
    synchronize,
)
from kernelab.runtime.memory.device import Device, get_device, get_devices
from kernelab.runtime.memory.streams import (
    Event,
    ScopedStream,
    Stream,
    get_event_elapsed_time,
    get_stream,
    record_event,
    set_stream,
    synchronize_event,
    synchronize_stream,
    wait_event,
    wait_stream,
)
from kernelab.runtime.ops.elementwise import map
from kernelab.runtime.ops.indexed import (
    indexedarray,
    indexedarray1d,
    indexedarray2d,
    indexedarray3d,
    indexedarray4d,
)
from kernelab.views import install as _install_views
from kernelab.views.pages.display import show_now as _show_now
from kernelab.warp import names as _warp_names

if _TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell as _Shell

    from kernelab.autodiff.inspect.contributions import contributions

__version__ = "0.1.0"

_LATER = {"contributions": "kernelab.autodiff.inspect.contributions"}
"""Names that are loaded when they are first asked for, and where they stand."""

_FACES = ("autograd", "config", "optim", "types", "utils")

adjoint = _AdjointWord("adjoint")
tid = _Word("tid")
atomic_add = _Word("atomic_add")
atomic_sub = _Word("atomic_sub")
atomic_min = _Word("atomic_min")
atomic_max = _Word("atomic_max")
atomic_and = _Word("atomic_and")
atomic_or = _Word("atomic_or")
atomic_xor = _Word("atomic_xor")
atomic_exch = _Word("atomic_exch")
atomic_cas = _Word("atomic_cas")
printf = _Word("printf")


def _offer_magic() -> None:
    """In a notebook that is running, the first ``%%kernel`` loads the extension where nobody has loaded it.

    IPython is asked for its shell only where it has been imported already.
    """
    shell = getattr(_sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or "kernel" in shell.magics_manager.magics["cell"]:
        return

    def kernel(line: str, cell: str) -> None:
        """Compile the functions of this cell; the first one of a notebook loads kernelab."""
        shell.extension_manager.load_extension("kernelab")
        shell.run_cell_magic("kernel", line, cell)

    shell.register_magic_function(kernel, "cell")


class _Trace(_Builtin):
    """Of a matrix, the sum of its diagonal; of a kernel, the run of one thread."""

    def __call__(
        self,
        kernel_or_matrix: _Any = None,
        /,
        thread: int | _Sequence[int] = 0,
        dim: int | _Sequence[int] | None = None,
        inputs: _Sequence[_Any] = (),
        outputs: _Sequence[_Any] = (),
        adjoints: _Mapping[_Any, _Any] | None = None,
    ) -> _Any:
        """The sum of the diagonal of a matrix, or the run of one thread of a kernel.

        A matrix is a square one of floats.  `thread` is a position in the grid `dim`, an int or one for each
        of its dimensions; `adjoints` are the cotangents that the adjoint starts with, by array or name, 1
        for all that the kernel changes unless given.  Nothing that is given changes.  Raises LaunchError
        for a thread outside of the grid, and what a launch raises.
        """
        if isinstance(kernel_or_matrix, Kernel):
            from kernelab.autodiff.inspect.thread_run import trace_thread

            _install_reports()
            return trace_thread(kernel_or_matrix, thread, dim, inputs, outputs, adjoints)
        is_alone = thread == 0 and dim is None and not inputs and not outputs and adjoints is None
        is_other = kernel_or_matrix is None or isinstance(kernel_or_matrix, str) or callable(kernel_or_matrix)
        if is_other or not is_alone:
            found = _described(kernel_or_matrix) if is_other else "a matrix and more"
            message = f"trace takes a kernel and a thread, or a square matrix alone, not {found}"
            hint = "write kl.trace(kernel, 0, dim=n, inputs=[...], outputs=[...]), or kl.trace(m)"
            if isinstance(kernel_or_matrix, str):
                hint = "name the kernel without quotation marks: kl.trace(kernel, 0, dim=n, inputs=[...])"
            raise KernelTypeError(_Diagnostic(message, code="call", hint=hint))
        return super().__call__(kernel_or_matrix)


trace = _Trace("trace")


def _install_reports() -> None:
    from kernelab.views.checks import reports

    reports.install()


def _live_tape(tape: Tape, static: dict[str, str]) -> dict[str, _Any]:
    """A tape as a widget, in a notebook that is running; anywhere else its static forms."""
    shell = getattr(_sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return static
    from kernelab.jupyter.live import live_bundle

    return live_bundle(tape, static)


_install_views({Tape: _live_tape})
_offer_magic()


@_telling(shown="write kl.show(x) of a kernel, an array, a report or a tape")
def show(shown: _Any) -> None:
    """Show an object now: a tape, before anything is recorded, as a view that follows the recording.

    A kernel, an array, a report or a tape shows as the value of a cell does; where no notebook is running,
    its text is printed.
    """
    _show_now(shown)


def load_ipython_extension(shell: "_Shell") -> None:
    """Load the extension; called by ``%load_ext kernelab``."""
    from kernelab.jupyter import load

    load(shell)


def unload_ipython_extension(shell: "_Shell") -> None:
    """Unload the extension; called by ``%unload_ext kernelab``."""
    from kernelab.jupyter import unload

    unload(shell)


def __getattr__(name: str) -> _Any:
    """Return a type or an operation of the language, or a module of kernelab."""
    if name in _FACES:
        return _import_module(f"kernelab.{name}")
    if name in _LATER:
        _install_reports()
        return getattr(_import_module(_LATER[name]), name)
    try:
        return _word(name)
    except KeyError:
        pass
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in _warp_names.__all__:
        return getattr(_warp_names, name)
    raise _missing("kernelab", name, __dir__())


def __dir__() -> list[str]:
    """The names that a completer offers: the public names, not the folders that they come from."""
    return sorted({*__all__, *_language_names(), *_BARE, *_FACES, "__version__"})


__all__ = [
    "BuildError",
    "Device",
    "Event",
    "Function",
    "GradientError",
    "Graph",
    "Kernel",
    "KernelAssertionError",
    "KernelAttributeError",
    "KernelError",
    "KernelIndexError",
    "KernelInterrupt",
    "KernelKeyError",
    "KernelMemoryError",
    "KernelNameError",
    "KernelRaceError",
    "KernelSyntaxError",
    "KernelTypeError",
    "KernelValueError",
    "KernelWarning",
    "KernelZeroDivisionError",
    "Launch",
    "LaunchError",
    "NotFiniteError",
    "ScopedCapture",
    "ScopedDevice",
    "ScopedStream",
    "ScopedTimer",
    "Stream",
    "Tape",
    "TapeError",
    "adjoint",
    "array",
    "array1d",
    "array2d",
    "array3d",
    "array4d",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_exch",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "capture_begin",
    "capture_end",
    "capture_launch",
    "checkpoint",
    "clone",
    "compile",
    "constant",
    "contributions",
    "copy",
    "device_from_torch",
    "device_to_torch",
    "dtype_from_numpy",
    "dtype_from_torch",
    "dtype_to_numpy",
    "dtype_to_torch",
    "empty",
    "empty_like",
    "find_races",
    "from_dlpack",
    "from_numpy",
    "from_ptr",
    "from_torch",
    "full",
    "full_like",
    "func",
    "func_grad",
    "func_jvp",
    "func_native",
    "func_replay",
    "get_device",
    "get_devices",
    "get_event_elapsed_time",
    "get_preferred_device",
    "get_stream",
    "indexedarray",
    "indexedarray1d",
    "indexedarray2d",
    "indexedarray3d",
    "indexedarray4d",
    "is_cpu_available",
    "is_cuda_available",
    "kernel",
    "launch",
    "map",
    "ones",
    "ones_like",
    "overload",
    "printf",
    "record_event",
    "ref",
    "set_device",
    "set_stream",
    "show",
    "static",
    "struct",
    "synchronize",
    "synchronize_event",
    "synchronize_stream",
    "tid",
    "to_dlpack",
    "to_torch",
    "trace",
    "wait_event",
    "wait_stream",
    "zeros",
    "zeros_like",
]
