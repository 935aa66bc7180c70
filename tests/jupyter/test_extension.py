"""Loading and unloading, completion, inspection, and what works without loading anything."""

from pathlib import Path

import pytest

from kernelab.jupyter.inspection import ARRAY_ATTRIBUTES
from kernelab.jupyter.magics import OPTIONS
from tests.jupyter.conftest import Notebook

MAGIC = "%%kernel --quiet\ndef f(x: array[float]):\n    x[tid()] = 1.0"


def test_before_loading_there_is_no_magic_and_after_unloading_there_is_none_again(bare: Notebook) -> None:
    assert "not found" in bare.run(MAGIC).stream
    bare.run("%load_ext kernelab")
    assert bare.run(MAGIC).stream == ""
    bare.run("%unload_ext kernelab")
    assert "not found" in bare.run(MAGIC).stream


def test_loading_twice_offers_every_word_once_and_unloading_takes_all_away(bare: Notebook) -> None:
    count = "len(get_ipython().Completer.custom_matchers), get_ipython().kernel.do_inspect.__class__.__name__"
    before = bare.run(count).text
    bare.run("%load_ext kernelab")
    once = bare.run(count).text
    bare.run("%reload_ext kernelab")
    bare.run("import kernelab; kernelab.load_ipython_extension(get_ipython())")
    assert bare.run(count).text == once != before
    bare.run("%unload_ext kernelab")
    assert bare.run(count).text == before


def test_views_and_clean_errors_need_no_loading(fresh: Notebook) -> None:
    fresh.run("import kernelab as kl")
    fresh.run("made = kl.compile('def f(x: array[float]):\\n    x[tid()] = sin(x[tid()])')")
    assert "f_adjoint" in fresh.run("made['f']").html
    outcome = fresh.run("kl.compile('def f(x: array[float]):\\n    x[0] = wrong')")
    assert outcome.error_name == "KernelNameError"
    assert "the name wrong is not known here" in outcome.traceback
    assert "File " not in outcome.traceback


def test_after_the_import_alone_the_first_kernel_cell_loads_the_extension(fresh: Notebook) -> None:
    fresh.run("import kernelab as kl")
    assert fresh.run("get_ipython().Completer.custom_matchers").text == "[]"
    cell = fresh.run(MAGIC.replace("--quiet", ""))
    assert "kernel f" in cell.text
    assert fresh.run("len(get_ipython().Completer.custom_matchers)").text == "1"
    broken = fresh.run(MAGIC.replace("1.0", "wrong"))
    assert broken.traceback.splitlines()[1] == f"  Cell In[{broken.number}], line 3"
    assert "already loaded" in fresh.run("%load_ext kernelab").stream
    fresh.run("%unload_ext kernelab")
    assert "not found" in fresh.run(MAGIC).stream


def test_a_notebook_that_waits_imports_what_its_first_kernel_needs(fresh: Notebook) -> None:
    fresh.run("import kernelab, sys")
    while fresh.run("'kernelab.jupyter.live' in sys.modules").text != "True":
        pass  # the kernel imports between two cells
    assert fresh.run("get_ipython().Completer.custom_matchers").text == "[]"


def test_the_import_leaves_a_kernel_magic_of_the_notebooks_own_alone(fresh: Notebook) -> None:
    fresh.run("from IPython.core.magic import register_cell_magic")
    fresh.run("@register_cell_magic\ndef kernel(line, cell):\n    print('mine')")
    fresh.run("import kernelab")
    assert fresh.run(MAGIC).stream == "mine\n"


def test_a_warning_of_ours_is_one_line_and_others_stay_as_they_are(notebook: Notebook) -> None:
    ours = notebook.run("import warnings\nwarnings.warn('an array was overwritten', kl.KernelWarning)")
    assert ours.stream == "KernelWarning: an array was overwritten\n"
    other = notebook.run("warnings.warn('something else', UserWarning)")
    assert "UserWarning: something else" in other.stream
    assert ".py" in other.stream


USING = """%%kernel --quiet
def square(x: float):
    return x * x * scale

def spring(x: array[float]):
    x[tid()] = square(x[tid()]) + scale"""
CALLING = """%%kernel --quiet
def apply(x: array[float]):
    x[tid()] = square(x[tid()])"""


def test_a_captured_value_that_changes_is_pointed_out_once_until_the_cell_runs_again(
    notebook: Notebook,
) -> None:
    notebook.run("scale = 2.0")
    cell = notebook.run(USING).number
    assert notebook.run("scale = 2.0").text == ""
    warned = notebook.run("scale = 5.0").text
    assert "`square` and `spring` were compiled with scale = 2.0; scale is 5.0 now" in warned
    assert f"hint: run Cell In[{cell}] again" in warned
    assert notebook.run("scale = 6.0").text == ""
    assert notebook.run(USING).text == ""
    assert "compiled with scale = 6.0; scale is 7.0 now" in notebook.run("scale = 7.0").text


def test_a_function_that_is_defined_again_is_pointed_out_to_the_cells_that_call_it(
    notebook: Notebook,
) -> None:
    notebook.run("scale = 2.0")
    notebook.run(USING)
    cell = notebook.run(CALLING).number
    warned = notebook.run(USING.replace("x * x", "x + x")).text
    assert "`apply` was compiled with an earlier `square`, and still calls that" in warned
    assert f"hint: run Cell In[{cell}] again" in warned
    assert notebook.run(CALLING).text == ""


DECORATED = """gain = 2.0
@kl.func
def gained(x: float):
    return gain * x
@kl.func
def twice(x: float):
    return 2.0 * gained(x)
@kl.kernel
def apply(x: kl.array[float]):
    x[kl.tid()] = twice(x[kl.tid()])"""


def test_so_is_what_a_decorated_function_holds(notebook: Notebook) -> None:
    notebook.run(DECORATED)
    assert notebook.run("gain = 3.0").text == ""  # it has not been used yet
    assert notebook.run("apply[1](kl.ones(1))").text == ""
    assert "`gained` was compiled with gain = 3.0; gain is 5.0 now" in notebook.run("gain = 5.0").text
    anew = "@kl.func\ndef gained(x: float):\n    return x * x"
    assert "`twice` was compiled with an earlier `gained`, and still calls that" in notebook.run(anew).text


def test_a_function_of_the_kernels_own_cell_that_another_cell_defines_is_pointed_out(
    notebook: Notebook,
) -> None:
    notebook.run("scale = 2.0")
    first = notebook.run(USING).number
    again = notebook.run("%%kernel --quiet\ndef square(x: float):\n    return x * x * x")
    assert f"`spring` calls the `square` of Cell In[{first}], not the one of Cell In[" in again.text
    assert f"hint: change `square` in Cell In[{first}], or take it out there" in again.text
    assert notebook.run("1 + 1").text == "2"
    other = notebook.run("%%kernel --quiet\ndef unrelated(x: float):\n    return x")
    assert other.text == ""


def test_a_kernel_that_a_cell_has_shown_is_not_held_against_the_cell_that_replaces_it(
    notebook: Notebook,
) -> None:
    notebook.run("scale = 2.0")
    notebook.run(USING)
    assert "spring" in notebook.run("spring").text
    assert notebook.run(USING.replace("2.0", "3.0") + "\n").text == ""


def test_what_a_module_held_before_it_was_loaded_again_is_pointed_out(
    notebook: Notebook, tmp_path: Path
) -> None:
    text = "import kernelab as kl\n\n@kl.kernel\ndef fill(x: kl.array(dtype=float)):\n    x[kl.tid()] = 1.0\n"
    text += "\n@kl.func\ndef half(x: float):\n    return 0.5 * x\n"
    (tmp_path / "filling.py").write_text(text)
    notebook.run(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom filling import fill, half\nimport filling"
    )
    assert notebook.run("fill[1](kl.zeros(1))").text == ""
    reload = "import importlib\nsys.dont_write_bytecode = True\nmodule = importlib.reload(filling)"
    warned = notebook.run(reload).text
    assert "`fill` is what filling defined before it was loaded again" in warned
    assert "hint: run `from filling import fill` again" in warned
    assert "`half` is what filling defined before it was loaded again" in warned
    assert notebook.run("1 + 1").text == "2"
    assert notebook.run("from filling import fill, half").text == ""


def test_autoreload_makes_a_struct_that_changed_anew(notebook: Notebook, tmp_path: Path) -> None:
    """It sets a default that was edited on the class, unless that refuses; then the module runs again."""
    file = tmp_path / "having.py"
    file.write_text("import kernelab as kl\n\n@kl.struct\nclass Bag:\n    m: float = 2.0\n")
    start = f"import os, sys\nsys.path.insert(0, {str(tmp_path)!r})\nsys.dont_write_bytecode = True\n"
    notebook.run(start + "%load_ext autoreload\n%autoreload 2\nimport having")
    made = notebook.run("%%kernel --quiet\ndef pack(y: array[float]):\n    y[0] = having.Bag().m").number
    edit = f"text = open({str(file)!r}).read().replace('2.0', '5.0')\nopen({str(file)!r}, 'w').write(text)\n"
    notebook.run(edit + f"os.utime({str(file)!r}, (2e9, 2e9))")
    warned = notebook.run("having.Bag().m").text
    notebook.run("%autoreload 0")
    assert "5.0" in warned
    assert "`pack` was compiled with an earlier `having.Bag`" in warned
    assert f"hint: run Cell In[{made}] again" in warned


def test_a_constant_of_the_kernels_own_cell_is_to_be_changed_there(notebook: Notebook) -> None:
    cell = notebook.run(USING.replace("\n", "\nscale = 2.0\n", 1)).number
    warned = notebook.run("scale = 3.0").text
    assert f"hint: change scale in Cell In[{cell}], and run that again" in warned


def test_an_array_that_is_changed_in_place_is_pointed_out(notebook: Notebook) -> None:
    notebook.run("up = np.array([0.0, 1.0], np.float32)")
    notebook.run("%%kernel --quiet\ndef lift(x: array[vec2]):\n    x[tid()] = up")
    assert "compiled with up = [0.0, 1.0]; up is [0.0, 2.0] now" in notebook.run("up[1] = 2.0").text


@pytest.mark.parametrize(
    ("before", "expression", "after"),
    [
        ("gain = 2.0", "2.0 * gain", "gain = 3.0"),
        ("gain = {'k': 2.0}", "gain['k']", "gain['k'] = 3.0"),
        ("gain = [1.0, 2.0]", "gain[1]", "gain.append(3.0)"),
        ("def gain(): return 2.0", "gain()", "def gain(): return 3.0"),
    ],
)
def test_so_is_a_name_in_a_static_expression(
    notebook: Notebook, before: str, expression: str, after: str
) -> None:
    notebook.run(before)
    notebook.run(f"%%kernel --quiet\ndef lift(x: array[float]):\n    x[tid()] = static({expression})")
    assert notebook.run("1 + 1").text == "2"
    assert "`lift` was compiled with" in notebook.run(after).text
    assert notebook.run("1 + 1").text == "2"


def test_the_values_of_an_array_whose_length_is_static_may_change(notebook: Notebook) -> None:
    notebook.run("data = np.zeros(3)")
    notebook.run("%%kernel --quiet\ndef lift(x: array[float]):\n    x[tid()] = static(len(data))")
    assert notebook.run("data[0] = 1.0").text == ""


PAIR = """%%kernel --quiet
@struct
class Pair:
    first: float = 2.0
    second: float"""
SUM = """%%kernel --quiet
def add(p: Pair, q: Pair) -> Pair:
    return Pair(p.first + q.first, p.second)"""
ADDING = """%%kernel --quiet
def lift(x: array[float]):
    p = Pair() + Pair(second=x[tid()])
    x[tid()] = p.first"""


def test_so_is_a_struct_or_an_operator_of_one_that_is_defined_anew(notebook: Notebook) -> None:
    for cell in (PAIR, SUM, ADDING):
        notebook.run(cell)
    assert notebook.run("lift[1](kl.zeros(1))").text == ""
    assert notebook.run(PAIR).text == ""  # it is the same
    warned = notebook.run(PAIR.replace("2.0", "3.0")).text
    assert "`add` was compiled with an earlier `Pair`\n" in warned
    assert "`lift` was compiled with an earlier `Pair`\n" in warned
    notebook.run(SUM)
    notebook.run(ADDING)
    warned = notebook.run(SUM.replace("+", "*")).text
    assert "`lift` was compiled with an earlier `add`, and still calls that" in warned


def test_so_is_what_a_generic_kernel_holds(notebook: Notebook) -> None:
    notebook.run("gain = 2.0")
    notebook.run("%%kernel --quiet\ndef lift(x: array[Any]):\n    x[tid()] = x.dtype(gain)")
    notebook.run("lift[1](kl.zeros(1))\nlift[1](kl.zeros(1, dtype=kl.float64))")
    assert "`lift` was compiled with gain = 2.0; gain is 3.0 now" in notebook.run("gain = 3.0").text


def test_an_attribute_that_changed_is_pointed_out(notebook: Notebook) -> None:
    notebook.run("class Config:\n    gain = 2.0")
    notebook.run("%%kernel --quiet\ndef lift(x: array[float]):\n    x[tid()] = Config.gain")
    assert "compiled with Config.gain = 2.0; Config.gain is 3.0 now" in notebook.run("Config.gain = 3.0").text


FACTORY = """def make(n):
    @kl.kernel
    def add(x: kl.array(dtype=float)):
        x[kl.tid()] = x[kl.tid()] + n
    return add
add = make(1.0)"""


def test_names_that_only_look_alike_and_what_is_unloaded_are_left_alone(notebook: Notebook) -> None:
    notebook.run(FACTORY + "\nadd[1](kl.zeros(1))")
    notebook.run("of_text = kl.compile('def f(x: array[float]):\\n    x[0] = n', {'n': 1.0})['f']")
    assert notebook.run("n = 5.0").text == ""
    notebook.run("scale = 2.0")
    notebook.run(USING)
    notebook.run("%unload_ext kernelab")
    assert notebook.run("scale = 3.0").text == ""


def test_the_first_line_completes_options_and_their_values(without_jedi: Notebook) -> None:
    assert set(without_jedi.complete("%%kernel --")) == set(OPTIONS)
    assert set(without_jedi.complete("%%kernel --quiet --")) == set(OPTIONS) - {"--quiet"}
    assert set(without_jedi.complete("%%kernel --show t")) == {"tangent", "textbook"}
    assert without_jedi.complete("%%kernel --device ") == {"cpu": "value"}
    assert without_jedi.complete("%%kernel --check ") == {"full": "value"}


def test_the_body_completes_the_words_of_the_language(without_jedi: Notebook) -> None:
    body = "%%kernel\ndef f(x: array[float]):\n    i = "
    assert without_jedi.complete(body + "norm")["normalize"] == "function"
    assert without_jedi.complete(body + "mat3")["mat33"] == "class"
    assert without_jedi.complete(body + "ti")["tid"] == "function"
    assert "x.shape" in without_jedi.complete(body + "x.sh")
    assert "normalize" not in without_jedi.complete("i = norm")


def test_after_a_dot_the_body_completes_what_a_kernel_can_use(
    without_jedi: Notebook,
) -> None:
    without_jedi.run("x = kl.zeros(1)")
    body = "%%kernel\ndef f(x: array[float]):\n    i = "
    offered = without_jedi.complete(body + "kl.")
    assert "kl.tanh" in offered
    assert "kl.Tape" not in offered
    assert set(without_jedi.complete(body + "x.")) == {f"x.{name}" for name in ARRAY_ATTRIBUTES}


SPRING = "@struct\nclass Spring:\n    stiffness: float\n    # at rest\n    length: float\n\n"


@pytest.mark.parametrize("is_in_cell", [True, False])
def test_the_body_completes_the_fields_of_structs(without_jedi: Notebook, is_in_cell: bool) -> None:
    if not is_in_cell:
        without_jedi.run("%%kernel\n" + SPRING)
    head = "%%kernel\n" + (SPRING if is_in_cell else "")
    body = head + "def f(s: Spring, several: array[Spring], x: array[float]):\n    i = tid()\n    x[i] = "
    fields = {"stiffness", "length"}
    assert {word.rpartition(".")[2] for word in without_jedi.complete(body + "s.")} == fields
    assert without_jedi.complete(body + "s.st") == {"s.stiffness": "property"}
    assert {word.rpartition(".")[2] for word in without_jedi.complete(body + "several[i].")} == fields
    assert "several.shape" in without_jedi.complete(body + "several.")
    without_jedi.run("Spring = None")


def test_the_body_completes_the_components_of_vectors(without_jedi: Notebook) -> None:
    body = "%%kernel\ndef f(v: vec2, several: array2d[kl.vec3d], q: array[quat]):\n"
    body += "    i = tid()\n    taken = several[i, 0]\n    made = vec4(1.0)\n    s = s[0]\n    v.x = "
    for before, components in {
        "v.": "xy",
        "several[i, 0].": "xyz",
        "q[i].": "xyzw",
        "taken.": "xyz",
        "made.": "xyzw",
        "s.": "",
    }.items():
        offered = without_jedi.complete(body + before)
        assert {word.rpartition(".")[2] for word in offered} == set(components), before
    assert without_jedi.complete(body + "i.") == {}


def test_the_body_still_completes_the_names_of_the_notebook(without_jedi: Notebook) -> None:
    without_jedi.run("gravity = 9.81")
    assert "gravity" in without_jedi.complete("%%kernel\ndef f(x: array[float]):\n    x[0] = grav")


def test_a_word_of_the_language_is_explained_inside_a_kernel_cell_only(notebook: Notebook) -> None:
    assert "Hyperbolic tangent" in notebook.inspect("%%kernel\ndef f(x: array[float]):\n    x[0] = tanh")
    assert "whatever other threads do" in notebook.inspect(
        "%%kernel\ndef f(x: array[float]):\n    atomic_add"
    )
    assert notebook.inspect("tanh") == ""
    assert "Hyperbolic tangent" in notebook.inspect("kl.tanh")


TOLD = """%%kernel
def relax(x: array[vec3], y: array[float]):
    i = tid()
    p = x[i]
    y[i] = gravity * length(p)
"""


@pytest.mark.parametrize(
    ("place", "lines"),
    {
        "i": ("i: int32, the number of the thread", "adjoint of line 3"),
        "p": ("p: vec3", "adjoint of line 4"),
        "y": ("y: array[float]",),
        "y[i] = gravity *": ("mul(a: Number, b: Number) -> Number", "a_bar += v1_bar * b"),
        "y[i] = gravity * leng": (
            "length(a: vec[n, Float])",
            "a_bar += normalize(a) * v1_bar",
            "adjoint of line 5",
        ),
        "y[i] = gravity": ("Type:", "9.81"),
    }.items(),
)
def test_shift_tab_tells_what_the_pointer_does(
    notebook: Notebook, place: str, lines: tuple[str, ...]
) -> None:
    notebook.run("gravity = 9.81")
    place = f"    {place}"
    told = notebook.inspect(TOLD, TOLD.index(place) + len(place))
    assert all(line in told for line in lines)


def test_shift_tab_in_parentheses_tells_of_the_call(notebook: Notebook) -> None:
    assert "length(a: vec[n, Float])" in notebook.inspect(
        TOLD.replace("length(p)", "length()"), TOLD.index("p)")
    )
