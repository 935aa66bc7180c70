"""The layers: every module of kernelab imports only what stands to its left.

Read from the syntax tree, so an import inside a function or under TYPE_CHECKING counts too.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kernelab"

FACES = (
    "autograd",
    "func",
    "types",
    "optim",
    "utils",
    "config",
    "warp",
    "interop",
    "distributed",
    "teach",
    "showing",
    "exploring",
    "language",
)
COMMANDS = ("doctor", "__main__")
COMPOSED = frozenset({"frontend", "passes", "codegen", "backend"})
COMPOSER = "kernelab.runtime.kernel.kernel"
NOTEBOOK_PACKAGES = frozenset({"IPython", "ipywidgets", "anywidget", "traitlets", "comm", "ipykernel"})

LANGUAGE = frozenset({"data_classes", "hooks", "errors", "lang"})
CORE = LANGUAGE | {"host", "builtins", "guidance", "settings"} | COMPOSED
LEFT_OF: dict[str, frozenset[str]] = {
    "data_classes": frozenset(),
    "hooks": frozenset(),
    "errors": frozenset({"data_classes", "hooks"}),
    "settings": frozenset({"data_classes"}),
    "guidance": frozenset({"data_classes", "hooks", "errors"}),
    "lang": frozenset({"data_classes", "hooks", "errors"}),
    "host": LANGUAGE,
    "builtins": LANGUAGE | {"host"},
    "frontend": LANGUAGE | {"host", "builtins", "guidance"},
    "passes": LANGUAGE,
    "codegen": LANGUAGE | {"passes"},
    "backend": LANGUAGE | {"codegen", "passes", "settings"},
    "runtime": CORE,
    "autodiff": CORE | {"runtime"},
    "views": CORE | {"runtime", "autodiff"},
    "faces": CORE | {"runtime", "autodiff", "views"},
    "kernelab": CORE | {"runtime", "autodiff", "views", "faces"},
    "jupyter": CORE | {"runtime", "autodiff", "views", "faces", "kernelab"},
    "commands": CORE | {"runtime", "autodiff", "views", "faces", "kernelab"},
}

ROOMS: dict[str, tuple[str, ...]] = {
    "frontend": (
        "meaning",
        "expressions",
        "definitions",
    ),
    "passes": (
        "access",
        "common",
        "ad",
    ),
    "codegen": (
        "cpp",
        "vectors",
        "listing",
    ),
    "backend": (
        "common",
        "cpu",
        "cuda",
    ),
    "runtime": (
        "context",
        "memory",
        "array",
        "host",
        "kernel",
        "launch",
        "ops",
    ),
    "autodiff": (
        "records",
        "transforms",
        "tape",
        "rule_checks",
        "jacobians",
        "checks",
        "inspect",
    ),
    "views": (
        "pages",
        "kernel",
        "tape",
        "live",
        "checks",
    ),
}
"""The packages of each layer, from left to right: a package imports only those before it."""


def layer_of(module: str) -> str:
    """The layer of a module, given its dotted name; the package itself, with the public names, is one."""
    parts = module.split(".")
    if len(parts) == 1:
        return "kernelab"
    name = parts[1]
    return "faces" if name in FACES else "commands" if name in COMMANDS else name


def room_of(module: str) -> int:
    """The position of a module's package in its layer: the layer itself and modules beside its packages come
    last.
    """
    parts = module.split(".")
    rooms = ROOMS.get(layer_of(module), ())
    if len(parts) == 2:
        return len(rooms)
    return rooms.index(parts[2]) if len(parts) > 2 and parts[2] in rooms else len(rooms) + 1


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a module, those inside of others too; no expressions, of which there are most."""
    found = [tree]
    while found:
        node = found.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            found += inner if isinstance(inner, list) else ()


def imports_of(module: str, text: str, is_package: bool = False) -> Iterator[str]:
    """The absolute name of every module that ``text``, as the source of ``module``, imports."""
    tree = ast.parse(text)
    # The package may reach for jupyter/ inside a function, as `%load_ext kernelab` makes it do.
    nodes = tree.body if module == "kernelab" else statements(tree)
    for node in nodes:
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                yield from _from_import(node, module, is_package)


def _from_import(node: ast.ImportFrom, module: str, is_package: bool) -> Iterator[str]:
    base = _absolute(node, module, is_package)
    for alias in node.names:
        # `from kernelab import errors` imports a module, `from kernelab import launch` the public names.
        inner = f"{base}.{alias.name}"
        yield inner if base.startswith("kernelab") and _is_module(inner) else base


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    up = node.level - 1 if is_package else node.level
    return ".".join([*parts[: len(parts) - up], *filter(None, [node.module])])


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def violations(module: str, text: str, is_package: bool = False) -> list[str]:
    """What ``text``, as the source of ``module``, imports against the rules, a sentence each."""
    own = layer_of(module)
    names = sorted(set(imports_of(module, text, is_package)))
    ours = {name: layer_of(name) for name in names if name.partition(".")[0] == "kernelab"}
    wrong = [
        f"{module} ({own}) imports {name} ({layer}), which is not to its left"
        for name, layer in ours.items()
        if layer not in LEFT_OF[own] | {own}
    ]
    wrong += [
        f"{module} imports {name}, which is in a package to its right"
        for name in ours
        if own in ROOMS and layer_of(name) == own and room_of(name) > room_of(module)
    ]
    if own != "jupyter":
        notebook = [name for name in names if name.partition(".")[0] in NOTEBOOK_PACKAGES]
        wrong += [f"{module} imports {name}; only kernelab/jupyter/ may" for name in notebook]
    if module != COMPOSER and set(ours.values()) >= COMPOSED:
        wrong.append(f"{module} composes {', '.join(sorted(COMPOSED))}; only {COMPOSER} may")
    return wrong


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = sorted(PACKAGE.rglob("*.py"))


MOST_FILES = 16
"""How many modules a folder may have, the package's own included."""


def test_no_folder_has_more_files_than_a_reader_can_hold() -> None:
    counts = Counter(path.parent for path in SOURCES)
    assert [str(folder) for folder, count in counts.items() if count > MOST_FILES] == []


# Public modules have the name of what they show.
SHOWN = frozenset({"types"})


def test_no_two_modules_have_the_same_name() -> None:
    counts = Counter(path.stem for path in SOURCES if path.stem not in SHOWN | {"__init__"})
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_package_has_its_place_in_its_layer() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts for path in SOURCES}
    strangers = {parts for parts in folders if len(parts) > 1 and parts[1] not in ROOMS.get(parts[0], ())}
    assert strangers == set(), "name its place in ROOMS"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_a_module_imports_only_what_stands_to_its_left(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert violations(module_name(path), text, path.name == "__init__.py") == []


def test_every_module_belongs_to_a_layer() -> None:
    strangers = {module_name(path) for path in SOURCES if layer_of(module_name(path)) not in LEFT_OF}
    assert strangers == set(), "name its place in LEFT_OF, and in ARCHITECTURE.md"


def test_every_module_that_is_imported_exists() -> None:
    """Also inside functions, where nothing else may notice for long."""
    modules = {module_name(path) for path in SOURCES}
    readers = [
        path for folder in ("kernelab", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    ]
    modules |= {module_name(path) for path in PACKAGE.rglob("*.pyi")}  # of which only type checkers know
    missing = {
        (str(path.relative_to(ROOT)), node.module)
        for path in readers
        for node in statements(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).startswith("kernelab.")
        if node.module not in modules
    }
    assert missing == set()


def import_graph(sources: Mapping[str, str], packages: Collection[str] = ()) -> dict[str, set[str]]:
    """For each module its imports of other modules, those inside functions and under TYPE_CHECKING too."""
    graph: dict[str, set[str]] = {}
    for module, text in sources.items():
        found = set[str]()
        for node in statements(ast.parse(text)):
            match node:
                case ast.Import():
                    found |= {alias.name for alias in node.names}
                case ast.ImportFrom():
                    base = _absolute(node, module, module in packages)
                    inner = {f"{base}.{alias.name}" for alias in node.names}
                    found |= {name if name in sources else base for name in inner}
        graph[module] = {name for name in found if name in sources and name != module}
    return graph


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[-len(component) :]
            found.extend([sorted(component)] if len(component) > 1 else [])

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def between_packages(graph: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """The imports between folders; a module directly in kernelab/ counts as a folder of its own."""
    packages: dict[str, set[str]] = {}
    for module, imported in graph.items():
        own = _package_of(module, graph)
        others = {_package_of(name, graph) for name in imported}
        packages.setdefault(own, set()).update(others - {own})
    return packages


def _package_of(module: str, graph: Collection[str]) -> str:
    is_package = any(name.startswith(f"{module}.") for name in graph)
    parent = module.rpartition(".")[0]
    if is_package:
        return f"{module}.__init__"
    return module if parent in ("", "kernelab") else parent


def test_no_import_goes_in_a_circle() -> None:
    """Neither of modules nor of packages."""
    graph = import_graph(
        {module_name(path): path.read_text(encoding="utf-8") for path in SOURCES},
        {module_name(path) for path in SOURCES if path.name == "__init__.py"},
    )
    assert circles(graph) == []
    assert circles(between_packages(graph)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from kernelab.lang import b",
        "from . import b",
        "def f():\n    import kernelab.lang.b",
        "if TYPE_CHECKING:\n    from kernelab.lang.b import x",
        "class A:\n    def f(self):\n        from .b import x",
    ],
)
def test_a_circle_is_noticed(text: str) -> None:
    back = {"kernelab.lang.b": "from kernelab.lang.c import y", "kernelab.lang.c": "import kernelab.lang.a"}
    graph = import_graph({"kernelab.lang.a": text, "kernelab.lang": "", **back}, {"kernelab.lang"})
    assert circles(graph) == [["kernelab.lang.a", "kernelab.lang.b", "kernelab.lang.c"]]
    graph["kernelab.lang.c"] = set()
    assert circles(graph) == []


def test_a_circle_of_packages_is_noticed() -> None:
    graph = {"kernelab.a.x": {"kernelab.b.x"}, "kernelab.b.y": {"kernelab.a.y"}}
    graph |= {"kernelab.b.x": set(), "kernelab.a.y": set()}
    assert circles(graph) == []
    assert circles(between_packages(graph)) == [["kernelab.a", "kernelab.b"]]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("kernelab.lang.ir", "from kernelab.builtins.table import builtin"),
        ("kernelab.passes.ad.jvp", "import kernelab.builtins.scalar"),
        ("kernelab.passes.ad.jvp", "from ...builtins import table"),
        ("kernelab.passes.ad.jvp", "def rule():\n    from kernelab import builtins"),
        ("kernelab.passes.ad.jvp", "from kernelab.codegen import cpp"),
        ("kernelab.autodiff.tape.tape", "from kernelab.views import report"),
        ("kernelab.func", "from kernelab import launch"),
        ("kernelab.passes.common.copying", "from kernelab.passes.ad import jvp"),
        ("kernelab.views.kernel.code_view", "import ipywidgets"),
        ("kernelab.lang.show", "from IPython.display import HTML"),
        ("kernelab", "from kernelab import jupyter"),
    ],
)
def test_an_import_to_the_right_is_noticed(module: str, text: str) -> None:
    assert len(violations(module, text)) == 1


COMPOSITION = """
from kernelab.frontend import lower
from kernelab.passes import vjp
from kernelab.codegen import cpp
from kernelab.backend import cpu
"""


def test_a_second_composer_of_frontend_passes_codegen_and_backend_is_noticed() -> None:
    assert violations("kernelab.runtime.kernel.kernel", COMPOSITION) == []
    assert len(violations("kernelab.autodiff.transforms.transforms", COMPOSITION)) == 1


def test_loading_the_notebook_extension_may_import_jupyter_late() -> None:
    text = "def load_ipython_extension(shell):\n    from kernelab.jupyter import magics"
    assert violations("kernelab", text, is_package=True) == []


WITHOUT_OPTIONAL_PACKAGES = """
import sys
for name in ("IPython", "ipywidgets", "anywidget", "traitlets", "comm", "ipykernel", "matplotlib", "cuda"):
    sys.modules[name] = None  # from here on, importing it raises ImportError
import kernelab
print(kernelab.__version__)
"""


def test_kernelab_imports_without_jupyter_matplotlib_cuda_or_a_compiler() -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_OPTIONAL_PACKAGES]
    child = subprocess.run(
        command, cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == 0, child.stderr


def loaded_after(statements: str) -> set[str]:
    """The modules that a new process has loaded after some statements."""
    command = [sys.executable, "-c", f"import sys\n{statements}\nprint(*sys.modules)"]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return set(child.stdout.split())


HEAVY = {"numpy", "ml_dtypes", "scipy", "matplotlib", "IPython", "ipywidgets", "ctypes", "inspect", "re"}


def test_an_import_alone_loads_neither_numpy_nor_a_layer() -> None:
    loaded = loaded_after("import kernelab")
    ours = {name for name in loaded if name.startswith("kernelab.")}
    packages = {"kernelab.runtime", "kernelab.runtime.context"}
    assert ours == {"kernelab.hooks", "kernelab.runtime.context.garbage"} | packages
    assert loaded & (HEAVY - loaded_after("import contextlib, importlib, typing")) == set()


@pytest.mark.parametrize(
    ("used", "late"),
    [
        ("kl.zeros(3)", ("frontend", "builtins", "passes.ad", "autodiff", "views", "codegen.listing")),
        ("kl.kernel, kl.launch", ("autodiff", "views", "codegen.listing", "backend.cpu.interpreter")),
        ("kl.Tape, kl.vec3, kl.sin", ("autodiff.transforms.transforms", "autodiff.jacobians", "views")),
        ("kl.func.grad", ("autodiff.checks", "views", "autodiff.tape.tape")),
    ],
)
def test_a_name_loads_what_it_needs(used: str, late: tuple[str, ...]) -> None:
    loaded = loaded_after(f"import kernelab as kl\n{used}")
    assert loaded & {f"kernelab.{module}" for module in late} == set()
    assert loaded & {"scipy", "matplotlib", "IPython", "ipywidgets", "numpy.random", "cProfile"} == set()


def test_loading_a_name_leaves_the_garbage_collector_as_it_was() -> None:
    assert "gc_is_on" in loaded_after(
        "import gc, kernelab as kl\nkl.kernel\nif gc.isenabled(): sys.modules['gc_is_on'] = gc"
    )


def test_a_name_is_looked_up_once() -> None:
    assert {"found", "once"} <= loaded_after(
        "import kernelab as kl\nkl.zeros, kl.float32, kl.sin, kl.pi\n"
        "if {'zeros', 'float32', 'sin', 'pi'} <= {*vars(kl)}: sys.modules |= {'found': kl, 'once': kl}"
    )


def test_every_name_can_be_imported_at_once() -> None:
    names = "{*kl.__all__} <= {*globals()} and {*kl.__all__} <= {*dir(kl)}"
    statements = f"import kernelab as kl\nfrom kernelab import *\nif {names}: sys.modules['all'] = kl"
    assert "all" in loaded_after(statements)
