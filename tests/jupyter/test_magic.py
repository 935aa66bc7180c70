"""The ``%%kernel`` magic in a real kernel: names, views, mistakes, options."""

import pytest

from tests.jupyter.conftest import Notebook

SCALE = """%%kernel
def scale(x: array[float], by: float):
    i = tid()
    x[i] = x[i] * by"""
TWO = """%%kernel
def twice(x: array[float]):
    i = tid()
    x[i] = 2.0 * x[i]

def thrice(x: array[float]):
    i = tid()
    x[i] = 3.0 * x[i]"""
HALF_BROKEN = """%%kernel
def good(x: array[float]):
    x[tid()] = 1.0

def bad(x: array[float]):
    x[tid()] = wrong"""


def with_options(options: str) -> str:
    return SCALE.replace("%%kernel", f"%%kernel {options}")


def test_a_cell_compiles_and_its_name_can_be_launched(notebook: Notebook) -> None:
    assert notebook.run(SCALE).error_name == ""
    launched = notebook.run("x = kl.array([1.0, 2.0])\nkl.launch(scale, dim=2, inputs=[x, 3.0])\nx.list()")
    assert launched.text == "[3.0, 6.0]"


def test_a_cell_shows_its_kernels_one_view_after_another(notebook: Notebook) -> None:
    first, second = notebook.run(TWO).displays
    assert "kernel twice · reads x · writes x" in first["text/plain"]
    assert "kernel thrice" in second["text/plain"]
    assert "def twice_adjoint" in first["text/plain"]
    assert first["text/html"].count("<details>") == 3


def test_without_backward_there_is_no_adjoint_and_a_gradient_through_the_kernel_is_an_error(
    notebook: Notebook,
) -> None:
    shown = notebook.run(with_options("--no-backward")).text
    assert "scale_adjoint" not in shown
    assert "its backward pass is switched off" in shown
    tape = "x = kl.array([1.0, 2.0], requires_grad=True)\nwith kl.Tape() as tape:\n    scale[2](x, 3.0)\n"
    outcome = notebook.run(tape + "tape.backward(grads={x: kl.ones(2, dtype=float)})")
    assert outcome.error_name == "TapeError"


def test_a_kernel_shows_its_view_as_the_value_of_a_cell(notebook: Notebook) -> None:
    shown = notebook.run(SCALE).displays
    assert notebook.run("scale").displays == shown


FUNCTIONS = """%%kernel
def square(t: float):
    return t * t

def g(x: float, y: float):
    return square(x) * y + sin(x)"""


def test_a_function_shows_its_derivatives_as_a_kernel_does(notebook: Notebook) -> None:
    (shown,) = notebook.run(FUNCTIONS).displays
    assert shown["text/plain"].startswith("function g")
    assert "def g_adjoint" in shown["text/plain"]
    assert "return t * t" in shown["text/plain"]
    assert notebook.run("g").displays == [shown]
    assert "function square" in notebook.run("square").text
    assert "def g_tangent" in notebook.run(FUNCTIONS.replace("%%kernel", "%%kernel --show tangent")).text
    assert notebook.run("kl.func.grad(g)(2.0, 3.0)").text.startswith("np.float32(11.58")


def test_a_function_that_a_kernel_of_its_cell_calls_is_shown_with_the_kernel(notebook: Notebook) -> None:
    kernel = "\n\ndef k(x: array[float]):\n    x[tid()] = g(x[tid()], 2.0)"
    (shown,) = notebook.run(FUNCTIONS + kernel).displays
    assert shown["text/plain"].startswith("kernel k")


def test_a_function_whose_types_are_open_is_shown_for_floats(notebook: Notebook) -> None:
    (shown,) = notebook.run("%%kernel\ndef f(x, y):\n    return x * y").displays
    assert "def f_adjoint" in shown["text/plain"]
    assert notebook.run("%%kernel\ndef f(x):\n    return x[0]").displays == []
    assert "function f" in notebook.run("f").text


def test_the_view_of_a_kernel_of_ten_lines_is_small(notebook: Notebook) -> None:
    lines = [f"    x[i] = sin(x[i]) * {k}.5 + by" for k in range(7)]
    outcome = notebook.run("\n".join([*SCALE.split("\n")[:3], *lines, "    x[i] = x[i] * by"]))
    assert 0 < len(outcome.html) < 40_000


def test_quiet_shows_nothing_and_show_chooses_the_panes(notebook: Notebook) -> None:
    assert notebook.run(with_options("--quiet")).displays == []
    assert notebook.run(with_options("--show none")).displays == []
    tangent = notebook.run(with_options("--show tangent")).text
    assert "scale_tangent" in tangent
    assert "scale_adjoint" not in tangent
    everything = notebook.run(with_options("--show all"))
    for word in ("scale_adjoint(", "scale_tangent(", 'extern "C" int', "blockIdx"):
        assert word in everything.text
    assert "<details>" not in everything.html


def test_device_builds_the_machine_code_at_once(notebook: Notebook) -> None:
    notebook.run(SCALE)
    assert notebook.run("'entry' in vars(scale.program)").text == "False"
    notebook.run(with_options("--device cpu"))
    assert notebook.run("'entry' in vars(scale.program)").text == "True"


WRONG_RULE = """%%kernel --quiet OPTION
def cube(x: float):
    return x * x * x

@func_grad(cube)
def adj_cube(x: float, adj_ret: float):
    adjoint[x] += 2.0 * x * adj_ret

def cubes(x: array[float], y: array[float]):
    i = tid()
    y[i] = cube(x[i])"""


def test_no_check_leaves_the_derivatives_that_users_wrote_uncompared(notebook: Notebook) -> None:
    asked = "list(cubes.vjp(['x', 'y']).residuals)"
    notebook.run(WRONG_RULE.replace(" OPTION", " --no-check"))
    assert notebook.run(asked).stream == ""
    assert "adj_cube gives" in notebook.run(WRONG_RULE.replace(" OPTION", "")).stream


def test_check_checks_each_launch_of_the_kernels_of_a_cell(notebook: Notebook) -> None:
    racy = "def last(x: array[float], y: array[float]):\n    y[tid() // 2] = x[tid()]"
    notebook.run(f"%%kernel --quiet --check full\n{racy}")
    outcome = notebook.run("import kernelab as kl\nlast[2](kl.ones(2), kl.zeros(1))")
    assert outcome.error_name == "KernelRaceError"
    assert "threads 0 and 1 of `last` both store to y[0]" in outcome.traceback
    notebook.run(f"%%kernel --quiet\n{racy}")
    assert notebook.run("last[2](kl.ones(2), kl.zeros(1))").error_name == ""
    wrong = notebook.run(f"%%kernel --check some\n{racy}").stream
    assert "invalid choice: 'some' (choose from 'full')" in wrong


def test_options_of_warp_that_change_nothing_say_so(notebook: Notebook) -> None:
    told = notebook.run(with_options("--quiet --fast-math --max-unroll 8")).text
    assert "information: --fast-math changes nothing here: results are the same with every compiler" in told
    assert "information: --max-unroll changes nothing here: loops are differentiated as loops" in told
    assert "invalid int value: 'many'" in notebook.run(with_options("--max-unroll many")).stream


def test_an_option_that_does_not_exist_is_refused_in_a_sentence(notebook: Notebook) -> None:
    unknown = notebook.run(with_options("--shw all")).stream
    assert "unrecognized arguments: --shw all; did you mean --show?" in unknown
    assert "options are --show, --quiet, --device, --check, --no-check, --no-backward, --fast-math" in unknown
    sauce = notebook.run(with_options("--show sauce,adjoint")).stream
    assert "there is no sauce" in sauce
    assert "; did you mean source?" in sauce
    device = notebook.run(with_options("--device cuda:99"))
    assert device.error_name == "LaunchError"
    assert "no device 'cuda:99'" in device.traceback


def test_a_mistake_is_shown_at_its_line_of_the_running_cell_and_nothing_else_is(notebook: Notebook) -> None:
    outcome = notebook.run("\n\n" + HALF_BROKEN)
    assert outcome.error_name == "KernelNameError"
    first, place, *_ = outcome.traceback.splitlines()
    assert first.startswith("KernelNameError: the name wrong is not known here")
    assert place == f"  Cell In[{outcome.number}], line 8"
    assert "    8 |     x[tid()] = wrong" in outcome.traceback
    assert "File " not in outcome.traceback


def test_the_good_kernels_of_a_cell_with_a_mistake_land_and_earlier_ones_work(notebook: Notebook) -> None:
    notebook.run(SCALE)
    broken = notebook.run(HALF_BROKEN)
    assert [display["text/plain"].split(" · ")[0] for display in broken.displays] == ["kernel good"]
    outcome = notebook.run("x = kl.zeros(2)\ngood[2](x)\nscale[2](x, 4.0)\nx.list()")
    assert outcome.text == "[4.0, 4.0]"
    assert notebook.run("bad").error_name == "NameError"


def test_text_that_is_not_python_is_shown_in_the_same_way(notebook: Notebook) -> None:
    outcome = notebook.run("%%kernel\ndef f(x: array[float]):\n    x[0] = = 1.0")
    assert outcome.error_name == "KernelSyntaxError"
    assert f"Cell In[{outcome.number}], line 3" in outcome.traceback
    assert "^" in outcome.traceback
    assert "File " not in outcome.traceback


def test_ten_mistakes_of_one_cell_are_shown_at_once(notebook: Notebook) -> None:
    defs = [f"def f{k}(x: array[float]):\n    x[0] = unknown{k}" for k in range(12)]
    outcome = notebook.run("%%kernel\n" + "\n".join(defs))
    assert outcome.traceback.count("is not known here") == 10
    assert "... and 2 more" in outcome.traceback


def test_an_error_while_a_kernel_runs_shows_its_line_and_the_line_of_the_launch(notebook: Notebook) -> None:
    cell = notebook.run(SCALE).number
    notebook.run("def train(x):\n    scale[9](x, 1.0)")
    outcome = notebook.run("train(kl.zeros(3))")
    assert outcome.error_name == "KernelIndexError"
    assert f"Cell In[{cell}], line 4" in outcome.traceback
    assert f"Cell In[{outcome.number - 1}], line 2, in train" in outcome.traceback
    assert f"Cell In[{outcome.number}], line 1" in outcome.traceback
    assert "File " not in outcome.traceback


SPRING = """%%kernel --quiet
def half(x: float):
    "Half of x."
    return 0.5 * x

def spring(x: array[vec3], rest: float, energy: array[float]):
    "The energy of springs."
    i = tid()
    atomic_add(energy, 0, half(length(x[i]) - rest))"""


def test_a_kernel_is_explained_by_its_own_signature_and_docstring(notebook: Notebook) -> None:
    cell = notebook.run(SPRING).number
    assert notebook.inspect("spring").splitlines() == [
        "Signature:  spring(x: array[vec3], rest: float, energy: array[float])",
        "Docstring:  The energy of springs.",
        "Launch:    ",
        "spring[n](x, rest, energy)",
        "kl.launch(spring, dim=n, inputs=[x, rest, energy])",
        f"Defined in: Cell In[{cell}], line 6",
    ]
    assert notebook.inspect("half").splitlines() == [
        "Signature:  half(x: float)",
        "Docstring:  Half of x.",
        f"Defined in: Cell In[{cell}], line 2",
    ]
    notebook.run("from math import hypot")
    assert "Type:" in notebook.inspect("hypot")
    notebook.run("%unload_ext kernelab")
    assert "Type:" in notebook.inspect("spring")


def test_completion_after_a_kernel_offers_what_serves_a_user(notebook: Notebook) -> None:
    notebook.run(SPRING)
    offered = {word.rpartition(".")[2] for word in notebook.complete("spring.")}
    assert {"name", "doc", "source", "effects"} <= offered
    assert not [word for word in offered if word.startswith("_") or "entry" in word]


@pytest.mark.parametrize(
    ("made", "there", "machinery"),
    [
        ("kl.Tape()", "backward visualize zero", "cotangents epoch findings observe sweeps"),
        ("kl.zeros(3)", "numpy requires_grad shape", "allocation blank folds outline twin"),
        ("kl.autograd", "gradcheck jacobian taylor_test", "Any Callable apart by_adjoint"),
        ("kl.func", "grad hessian vmap", "Any leaves sys wraps"),
        ("kl.optim", "Adam SGD", "ABC np zeros"),
        ("kl", "Tape autograd sin vec3", "autodiff codegen frontend lang"),
    ],
)
def test_completion_offers_public_names_only(
    notebook: Notebook, made: str, there: str, machinery: str
) -> None:
    notebook.run(f"it = {made}")
    offered = {word.rpartition(".")[2] for word in notebook.complete("it.")}
    assert {*there.split()} <= offered
    assert not {*machinery.split()} & offered


DECORATED = """@kl.kernel
def outside(x: kl.array(dtype=float)):
    i = kl.tid()
    x[i + 1] = 1.0"""


def test_a_decorated_kernel_of_a_cell_is_called_after_its_cell(notebook: Notebook) -> None:
    cell = notebook.run(DECORATED).number
    outcome = notebook.run("outside[3](kl.zeros(3))")
    assert f"  Cell In[{cell}], line 4\n    4 |     x[i + 1] = 1.0" in outcome.traceback
    assert f"Cell In[{cell}]" in notebook.run("outside").text


def test_the_source_and_the_signature_of_a_kernel_can_be_inspected(notebook: Notebook) -> None:
    notebook.run(TWO)
    source = notebook.run("import inspect\nprint(inspect.getsource(thrice))").stream
    assert source.startswith("def thrice(x: array[float]):\n    i = tid()\n")
    assert notebook.run("print(inspect.signature(thrice))").stream == "(x: 'array[float]')\n"


def test_values_that_a_kernel_captured_are_shown(notebook: Notebook) -> None:
    notebook.run("dt = 0.25")
    outcome = notebook.run("%%kernel\ndef step(x: array[float]):\n    x[tid()] = x[tid()] + dt")
    assert "captured from outside: dt = 0.25" in outcome.text


def test_a_function_of_another_cell_is_shown_with_its_own_lines(notebook: Notebook) -> None:
    cell = notebook.run("%%kernel\ndef square(x: float):\n    return x * x").number
    outcome = notebook.run("%%kernel\ndef apply(x: array[float]):\n    x[tid()] = square(x[tid()])")
    assert f"Cell In[{cell}]" in outcome.text
    assert "3' │     return x * x" in outcome.text


def test_a_kernel_without_an_adjoint_says_why(notebook: Notebook) -> None:
    outcome = notebook.run("%%kernel\ndef count(n: array[int]):\n    atomic_add(n, 0, 1)")
    assert "no adjoint: no parameter is a float or an array of floats" in outcome.text


def test_an_empty_cell_is_not_told_of_a_magic_that_there_is_not(notebook: Notebook) -> None:
    assert notebook.run("%%kernel").stream.strip().endswith("but the cell body is empty.")


def test_help_of_what_a_cell_defines_is_short(notebook: Notebook) -> None:
    notebook.run(
        "%%kernel\ndef half(t: float):\n    return 0.5 * t\n\ndef halved(x: array[float]):\n    x[0] = 1.0"
    )
    assert "half(...) is its value" in notebook.run("help(half)").stream
    shown = notebook.run("help(halved)").stream
    assert "halved[n](...) launches n threads" in shown
    assert "Method resolution order" not in shown


def test_help_shows_what_the_magic_does_and_its_options(notebook: Notebook) -> None:
    shown = notebook.inspect("%%kernel")
    assert "Compile the functions of this cell" in shown
    for option in ("--show WHAT", "--quiet", "--device NAME"):
        assert option in shown


def test_a_note_is_shown_at_its_line_and_the_cell_still_compiles(notebook: Notebook) -> None:
    halve = "def halve(n: kl.array(dtype=int), x: kl.array(dtype=float)):\n    x[0] = float(n[0] / 2)"
    notebook.run("import kernelab as wp\n")
    outcome = notebook.run("%%kernel --quiet\n" + halve.replace("kl.", "wp."))
    assert outcome.error_name == ""
    assert "information" in outcome.text
    assert f"Cell In[{outcome.number}], line 3" in outcome.text
    assert notebook.run("halve").error_name == ""


ENDLESS = """%%kernel --quiet
def endless(x: array[float]):
    while x[0] < 1.0:
        x[0] = x[0] * 0.5"""


def test_a_tape_that_an_interrupt_has_left_open_is_closed_behind_its_cell(notebook: Notebook) -> None:
    opened = "with kl.Tape():\n    pass"
    notebook.run("tape = kl.Tape()")
    outcome = notebook.run("tape.__enter__()\nraise KeyboardInterrupt")  # before the block begins
    assert "this cell ended while a tape was open" in outcome.text
    assert notebook.run(opened).error_name == ""
    notebook.run("tape.__enter__()")
    assert "tape" not in notebook.run("1 / 0").text
    assert notebook.run(opened).error_name == "TapeError"
    notebook.run("tape.__exit__()")
    assert notebook.run(opened).error_name == ""


def test_interrupting_the_notebook_ends_a_kernel_that_would_run_for_ever(notebook: Notebook) -> None:
    notebook.run(ENDLESS)
    notebook.run("endless[0](kl.zeros(1))\nx = kl.zeros(1)")
    # What "Interrupt Kernel" sends.
    notebook.run("import os, signal, threading")
    notebook.run("timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))")
    outcome = notebook.run("timer.start()\nendless[1](x)")
    assert outcome.traceback.splitlines() == [
        "KernelInterrupt: the kernel `endless` was interrupted; the arrays that it writes are partly written",
        "",
        "  called from",
        f"  Cell In[{outcome.number}], line 2",
        "    2 | endless[1](x)",
    ]
    assert notebook.run("1 + 1").text == "2"


BUSY = """%%kernel --quiet
def busy(x: array[float], began: array[float]):
    began[tid()] = 1.0
    while x[0] < 1.0:
        x[0] = x[0] * 0.5"""

WATCHED = """import signal, threading, time
from concurrent.futures import ThreadPoolExecutor

errors = []

def work(x, began, threads=1):
    try:
        busy[threads](x, began)
    except BaseException as error:
        errors.append(type(error).__name__)

def press(began):
    while not began.numpy().any():
        time.sleep(0.001)
    # Of a signal to the process another thread may be told, and that wakes no main thread which waits.
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def pressed_after(began):
    threading.Thread(target=press, args=(began,)).start()
    return began
"""


@pytest.mark.parametrize("threads", [1, 100_000])
def test_interrupting_a_cell_ends_the_launches_of_its_threads(notebook: Notebook, threads: int) -> None:
    notebook.run(BUSY)
    notebook.run(WATCHED)
    notebook.run(f"busy[0](kl.zeros(1), kl.zeros(1)); x, began = kl.zeros(1), kl.zeros({threads})")
    in_a_pool = "with ThreadPoolExecutor(2) as pool:\n    pool.submit(work, x, began, {}).result()"
    outcome = notebook.run("pressed_after(began)\n" + in_a_pool.format(threads))
    assert outcome.error_name == "KeyboardInterrupt"
    assert notebook.run("errors").text == "['KernelInterrupt']"
    waits_in_vain = "thread = threading.Thread(target=work, args=(x, pressed_after(began)))\nthread.start()"
    notebook.run("began.zero_()")
    assert notebook.run(waits_in_vain + "\nthreading.Event().wait()").error_name == "KeyboardInterrupt"
    assert notebook.run("thread.join()\nerrors").text == "['KernelInterrupt', 'KernelInterrupt']"
    # The threads that help with large launches were started in an interrupted cell, and belong to none.
    assert notebook.run("float(kl.map(lambda v: 2.0 * v, kl.ones(1_000_000)).sum()[0])").text == "2000000.0"


def test_interrupting_a_cell_leaves_threads_of_earlier_cells_alone(notebook: Notebook) -> None:
    notebook.run(BUSY)
    notebook.run(WATCHED)
    notebook.run("x, began, mine, other = (kl.zeros(1) for _ in range(4))")
    notebook.run("thread = threading.Thread(target=work, args=(x, began))\nthread.start()")
    notebook.run("while not began.numpy().any():\n    time.sleep(0.001)")
    assert notebook.run("pressed_after(mine)\nbusy[1](other, mine)").error_name == "KernelInterrupt"
    assert notebook.run("thread.is_alive(), errors").text == "(True, [])"
    notebook.run("while thread.is_alive():\n    x.numpy()[0] = 2.0\n    thread.join(0.001)")
    assert notebook.run("errors").text == "[]"


PARTICLE = """%%kernel
class Particle:
    pos: vec3
    mass: float{}"""
WEIGH = """%%kernel
def weigh(ps: array[Particle], out: array[float]):
    i = tid()
    out[i] = ps[i].mass * ps[i].pos.x"""


def test_a_class_is_a_struct_of_the_notebook_and_kernels_keep_the_one_they_were_compiled_with(
    notebook: Notebook,
) -> None:
    assert notebook.run(PARTICLE.format(" = 2.0")).error_name == ""
    assert notebook.run("Particle()").text == "Particle(pos=[0.0, 0.0, 0.0], mass=2.0)"
    assert "kernel weigh" in notebook.run(WEIGH).text
    launch = (
        "ps, out = kl.full(1, Particle(pos=(3, 0, 0), mass=2)), kl.zeros(1)\nweigh[1](ps, out)\nout.list()"
    )
    assert notebook.run(launch).text == "[6.0]"
    notebook.run(PARTICLE.format(" = 2.0"))
    assert notebook.run(launch).text == "[6.0]"
    notebook.run(PARTICLE.format("\n    charge: int"))
    refused = notebook.run(launch)
    assert refused.error_name == "LaunchError"
    assert "of another definition: the other one has a field charge too" in refused.traceback
    notebook.run(WEIGH)
    assert notebook.run(launch).text == "[6.0]"


def test_what_a_kernel_prints_is_the_output_of_the_cell(notebook: Notebook) -> None:
    notebook.run('%%kernel --quiet\ndef told(x: array[float]):\n    i = tid()\n    print("x", i, "=", x[i])')
    assert notebook.run("told[2](kl.array([1.0, 2.5]))").stream == "x 0 = 1.0\nx 1 = 2.5\n"
