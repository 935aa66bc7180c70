"""kernelab: interactive differentiable programming for Jupyter.

    import kernelab as kl

Where to begin:

    %%kernel, @kl.kernel, kl.compile    make kernels, of a cell, of a function, of text
    kl.array, kl.zeros, ...             make arrays; ``requires_grad=True`` for those that get gradients
    kl.launch(kernel, dim=n, ...)       runs a kernel, also as ``kernel[n](...)``
    kl.Tape                             records launches; ``tape.backward(loss)`` fills ``x.grad``
    kl.func                             grad, vmap, jvp, hessian, ... of Python functions that launch kernels
    kl.autograd                         gradcheck, jacobian, ...
    kl.map, kl.optim, kl.config         functions on arrays, optimisers, settings
    kl.show, kl.trace, kl.graph         show a kernel and its adjoint, or a run of it

The types and operations of the kernel language are names of this module too: ``kl.vec3``, ``kl.sin``.
"""

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _Module
from typing import Any as _Any

from kernelab import hooks as _hooks
from kernelab.runtime.context.garbage import put_off as _put_off_garbage

__version__ = "0.1.0"

_HOMES = {
    "autodiff.tape.checkpoint": "checkpoint",
    "autodiff.tape.tape": "Tape",
    "exploring": "explore",
    "errors": (
        "BuildError GradientError KernelAssertionError KernelAttributeError KernelError KernelIndexError "
        "KernelInterrupt KernelKeyError KernelMemoryError KernelNameError KernelRaceError "
        "KernelSyntaxError KernelTypeError KernelValueError KernelWarning KernelZeroDivisionError "
        "LaunchError MissingPackageError NotFiniteError TapeError"
    ),
    "language": "Function",
    "runtime.array.array_attributes": "ref",
    "runtime.host.create": (
        "array array1d array2d array3d array4d clone copy empty empty_like from_dlpack from_numpy full "
        "full_like ones ones_like zeros zeros_like"
    ),
    "runtime.host.foreign": (
        "device_from_torch device_to_torch dtype_from_numpy dtype_from_torch dtype_to_numpy "
        "dtype_to_torch from_ptr from_torch to_dlpack to_torch"
    ),
    "runtime.host.host_words": "adjoint constant static",
    "runtime.kernel.decorators": "func_grad func_jvp func_native func_replay kernel overload struct",
    "runtime.kernel.kernel": "Kernel",
    "runtime.kernel.texts": "compile",
    "runtime.launch.command": "Launch",
    "runtime.launch.launch": "find_races launch",
    "runtime.launch.scoped": (
        "Graph ScopedCapture ScopedDevice ScopedTimer capture_begin capture_end capture_launch "
        "get_preferred_device is_cpu_available is_cuda_available set_device synchronize"
    ),
    "runtime.memory.device": "Device get_device get_devices",
    "runtime.memory.streams": (
        "Event ScopedStream Stream get_event_elapsed_time get_stream record_event set_stream "
        "synchronize_event synchronize_stream wait_event wait_stream"
    ),
    "runtime.ops.elementwise": "map",
    "runtime.ops.indexed": "indexedarray indexedarray1d indexedarray2d indexedarray3d indexedarray4d",
    "runtime.ops.joining": "concatenate stack",
    "showing": "contributions graph precision show trace",
    "views.live.live_views": "animation live progress",
}
"""The modules that hold the public names; each is imported when one of its names is first used.

Type checkers find the names in `kernelab/__init__.pyi`, which is generated from this table.
"""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

_FACES = ("autograd", "config", "distributed", "func", "interop", "optim", "teach", "types", "utils")


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
    _import_when_idle(shell)


_FIRST_USED = (
    "kernelab.lang.ir kernelab.builtins.convert kernelab.frontend.meaning.name_lookup kernelab.language "
    "kernelab.runtime.kernel.kernel kernelab.autodiff.tape.tape kernelab.views.kernel.code_view "
    "kernelab.jupyter kernelab.jupyter.live kernelab.autograd kernelab.views.checks.heatmap "
    "matplotlib.colors matplotlib.backend_bases matplotlib.axes matplotlib.figure "
    "matplotlib.backends.backend_agg"
)
"""What the first kernel, tape and picture of a notebook import, in parts that take about as long."""


def _import_when_idle(shell: _Any) -> None:
    """Import what the next cells are likely to need as soon as the notebook waits for one."""
    if getattr(shell, "kernel", None) is None:
        return
    import asyncio
    from contextlib import suppress

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # nothing would run what is put off
        return
    modules = iter(_FIRST_USED.split())

    def step() -> None:
        module = next(modules, None)
        if module is not None:
            with suppress(ImportError):  # the cell that needs it tells of a package that is missing
                _imported(module)
            loop.call_later(0.01, step)  # messages come first

    loop.call_later(0.01, step)


@_hooks.widget.provide
def _live(shown: _Any, static: dict[str, str]) -> dict[str, _Any]:
    """A tape or a live view as a widget, in a notebook that is running; anywhere else its static forms."""
    shell = getattr(_sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return static
    try:
        from kernelab.jupyter.live import live_bundle
    except ImportError:  # ipywidgets is not installed; `kernelab doctor` says so
        return static
    return live_bundle(shown, static)


_offer_magic()


def load_ipython_extension(shell: _Any) -> None:
    """Load the extension; called by ``%load_ext kernelab``."""
    _imported("kernelab.jupyter").load(shell)


def unload_ipython_extension(shell: _Any) -> None:
    """Unload the extension; called by ``%unload_ext kernelab``."""
    from kernelab.jupyter import unload

    unload(shell)


@_put_off_garbage()
def _imported(module: str) -> _Module:
    """A module, imported while Python does not look for garbage, which took a fifth of the time."""
    return _import_module(module)


def __getattr__(name: str) -> _Any:
    """Return a public name, a word of the language, or a module of kernelab, found once."""
    __tracebackhide__ = True  # IPython shows the frames of the user
    if name in _FACES:
        return _imported(f"kernelab.{name}")
    if name == "__all__":  # `from kernelab import *` asks
        return globals().setdefault(name, _starred())
    if name.startswith("__"):  # Python asks for __path__ and the like
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _HOME_OF:
        found = getattr(_imported(f"kernelab.{_HOME_OF[name]}"), name)
    else:
        found = _imported("kernelab.language").word(name)
    return globals().setdefault(name, found)  # threads that ask at the same time get one object


def __dir__() -> list[str]:
    """The names that a completer offers: the public names, not the folders that they come from."""
    return sorted({*_starred(), *_imported("kernelab.language").words(), *_FACES, "__version__"})


def _starred() -> list[str]:
    """What ``from kernelab import *`` brings: the public names, and the types but for `bool`."""
    types = {*_imported("kernelab.lang.types").named_types()} - {"bool"}
    return sorted([*_HOME_OF, "func", *_WORDS.split(), *types])


_WORDS = (
    "atomic_add atomic_and atomic_cas atomic_exch atomic_max atomic_min atomic_or atomic_sub atomic_xor "
    "printf tid"
)
"""The words of the language that are public names, too, so that ``from kernelab import *`` brings them."""
