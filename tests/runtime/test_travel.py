"""Kernels, functions, structs, transforms, arrays and reports in pickles, read again in another process."""

import copy
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest

import kernelab as kl
from kernelab.errors import Source
from kernelab.runtime.kernel.texts import compile_source

GAIN = 3.0
LENGTHS = [1, 2, 3]


class Settings:
    scale = 2.0
    file = io.StringIO()


@kl.struct
class Ball:
    mass: float
    place: kl.vec3


@kl.func
def cube(a: float):
    return a * a * a


@kl.func_grad(cube, check=False)
def adj_cube(a: float, adj_ret: float):
    kl.adjoint[a] += 30.0 * a * a * adj_ret


cube_with_rule = cube


@kl.func_native("return x + 1.0f;", "adj_x += adj_ret;")
def next_to(x: float) -> float: ...


@kl.func
def twice(a: float):
    return 2.0 * a


@kl.func
def twice(a: int):  # noqa: F811 (another of that name)
    return 20 * a


def made_with(factor: float) -> Any:
    @kl.kernel(enable_backward=False)
    def scaled(x: kl.array[float], y: kl.array[float]):
        i = kl.tid()
        y[i] = factor * x[i] + kl.float32(kl.static(len(LENGTHS)))

    return scaled


scaled_by_7 = made_with(7.0)


@kl.kernel
def weigh(x: kl.array[float], balls: kl.array[Ball], y: kl.array[float]):
    i = kl.tid()
    y[i] = (
        cube(x[i])
        + GAIN * next_to(x[i])
        + Settings.scale * twice(x[i])
        + kl.float32(twice(2))
        + balls[i].mass
    )


@kl.kernel
def grown(x: kl.array[Any], s: Any):
    i = kl.tid()
    x[i] = x[i] * s


def loss(x: kl.array) -> kl.array:
    return (x * x).sum()


CELL = """
class Spring:
    rest: float = 1.5

def stretched(a: float, spring: Spring):
    return a - spring.rest

def pull(x: array[float], spring: Spring, y: array[float]):
    "A lens over the stream."
    i = tid()
    lens = stretched(x[i], spring)
    y[i] = lens * gain + float(static(len(lengths)))

def fill(x: array[Any], value: Any):
    x[tid()] = value
"""


def cell() -> dict[str, Any]:
    """The definitions of a cell of a notebook where `lens` and `stream` are what no pickle holds."""
    names = {"gain": 2.0, "lengths": [1, 2], "lens": io.StringIO(), "stream": io.StringIO(), "kl": kl}
    compiled = compile_source(Source(CELL, "Cell In[7]", 2), names)
    compiled.lowered.raise_errors()
    return compiled.definitions


def elsewhere(send: Any, text: str, tmp_path: Path) -> str:
    """What a new process prints that runs a text with `sent`, and has none of these modules."""
    path = tmp_path / "sent.pickle"
    path.write_bytes(pickle.dumps(send))
    before = f"import pickle\nimport kernelab as kl\nsent = pickle.load(open({str(path)!r}, 'rb'))\n"
    places = os.pathsep.join([str(Path(kl.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", before + text],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": places},
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def weighed(kernel: Any, balls: Any) -> tuple[list[float], list[float]]:
    x, y = kl.array([1.0, 2.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
    with kl.Tape() as tape:
        kl.launch(kernel, dim=2, inputs=[x, balls], outputs=[y])
    tape.backward(grads={y: kl.ones_like(y)})
    return y.list(), x.grad.list()


def test_what_is_pickled_and_read_in_one_process_is_the_same_object() -> None:
    made = cell()
    instance = kl.overload(made["fill"], {"x": kl.array(dtype=float), "value": float})
    things = (*made.values(), instance, weigh, scaled_by_7, cube, twice, next_to, Ball, grown)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert all(a is b for a, b in zip(pickle.loads(pickle.dumps(things, protocol)), things, strict=True))
    found = cloudpickle.loads(cloudpickle.dumps((things, lambda: weigh)))
    assert all(a is b for a, b in zip(found[0], things, strict=True))
    assert found[1]() is weigh


def test_a_pickle_of_a_kernel_is_the_same_each_time() -> None:
    assert pickle.dumps(weigh) == pickle.dumps(weigh)
    assert cloudpickle.dumps(kl.func.grad(loss)) == cloudpickle.dumps(kl.func.grad(loss))


def test_kernels_of_a_cell_are_made_again_of_its_text_and_what_it_takes_from_the_notebook(
    tmp_path: Path,
) -> None:
    made = cell()
    text = """
import sys
pull, fill, stretched, Spring = (sent[name] for name in ("pull", "fill", "stretched", "Spring"))
x, y = kl.array([2.5, 3.5], dtype=float), kl.zeros(2)
kl.launch(pull, dim=2, inputs=[x, Spring()], outputs=[y])
print(y.list(), pull.source.label, stretched(2.0, Spring(0.5)), "tests" in sys.modules)
kl.launch(fill, dim=2, inputs=[x, 4.0])
print(x.list(), sent["pull"].definition.captured["gain"])
try:
    kl.launch(pull, dim=4, inputs=[x, Spring()], outputs=[y])
except kl.KernelError as error:
    print(error)
"""
    said = elsewhere(made, text, tmp_path)
    assert said.startswith("[4.0, 6.0] Cell In[7] 1.5 False\n[4.0, 4.0] 2.0\n")
    assert "  Cell In[7], line 12\n   12 |     lens = stretched(x[i], spring)\n" in said
    assert f"\n{' ' * 29}^^^^\n" in said


def test_a_value_that_has_changed_since_travels_as_it_was_compiled(tmp_path: Path) -> None:
    names = {"table": np.array([1, 2, 3], np.float32), "n": 2}
    compiled = compile_source(
        Source("def k(x: array[float]):\n    x[tid()] = table[1] + float(n)\n", "Cell In[1]"), names
    )
    kernel = compiled.definitions["k"]
    assert isinstance(kernel, kl.Kernel)
    names["table"][:] = 9.0
    names["n"] = 100
    text = "x = kl.zeros(1)\nkl.launch(sent, dim=1, inputs=[x])\nprint(x.list())"
    assert elsewhere(kernel, text, tmp_path) == "[4.0]\n"


DEFAULT = 2.0


@kl.func
def gained(a: float, by: float = DEFAULT) -> float:
    return a * by


@kl.kernel
def gain(x: kl.array[float], by: float = DEFAULT):
    x[kl.tid()] = by * gained(1.0)


DEFAULT = 5.0


def test_a_default_travels_as_it_was_at_the_def(tmp_path: Path) -> None:
    text = "x = kl.zeros(1)\nkl.launch(sent, dim=1, inputs=[x])\nprint(x.list())"
    assert elsewhere(gain, text, tmp_path) == "[4.0]\n"
    assert elsewhere(gained, "print(kl.map(sent, kl.ones(1)).list())", tmp_path) == "[2.0]\n"


def test_an_attribute_that_has_changed_since_is_an_error() -> None:
    settings = SimpleNamespace(gain=1.0)
    made = kl.compile(
        "def k(x: array[float]):\n    x[tid()] = settings.gain\n", {"settings": settings}, "a text"
    )
    pickle.dumps(made["k"])
    settings.gain = 2.0
    with pytest.raises(kl.KernelTypeError, match=r"compiled with settings\.gain = 1\.0, which is 2\.0 now"):
        pickle.dumps(made["k"])


def test_kernels_of_a_file_travel_with_functions_rules_and_structs(tmp_path: Path) -> None:
    balls = kl.zeros(2, dtype=Ball)
    there = elsewhere(
        (weigh, balls, scaled_by_7, grown),
        """
import sys
weigh, balls, scaled, grown = sent
x, y = kl.array([1.0, 2.0], dtype=float, requires_grad=True), kl.zeros(2, requires_grad=True)
with kl.Tape() as tape:
    kl.launch(weigh, dim=2, inputs=[x, balls], outputs=[y])
tape.backward(grads={y: kl.ones_like(y)})
z = kl.zeros(2)
kl.launch(scaled, dim=2, inputs=[x], outputs=[z])
kl.launch(grown, dim=2, inputs=[z, 2.0])
print((y.list(), x.grad.list()), z.list(), scaled.has_backward, "tests" in sys.modules)
""",
        tmp_path,
    )
    assert there == f"{weighed(weigh, balls)} [20.0, 34.0] False False\n"
    assert weighed(weigh, balls)[1][0] == 30.0 + 3.0 + 4.0  # the rule, which is wrong on purpose


def test_transforms_travel_as_the_call_that_made_them(tmp_path: Path) -> None:
    x = kl.array([1.0, 2.0], dtype=float)
    for made in (
        kl.func.grad(loss),
        kl.func.vmap(kl.func.grad(loss)),
        kl.func.hessian(loss),
        kl.func.jacfwd(kl.func.jacrev(loss)),
    ):
        for again in (pickle.loads(pickle.dumps(made)), cloudpickle.loads(cloudpickle.dumps(made))):
            assert repr(again) == repr(made)
            np.testing.assert_array_equal(again(x).numpy(), made(x).numpy())
    value, gradient = pickle.loads(pickle.dumps(kl.func.as_numpy(loss)))(np.array([1.0, 2.0]))
    assert (value, gradient.tolist()) == (5.0, [2.0, 4.0])


def test_worker_processes_that_are_spawned_take_kernels_and_transforms() -> None:
    x = kl.array([1.0, 2.0], dtype=float)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(kl.func.grad(loss), x).result().list() == [2.0, 4.0]
        failed = pool.submit(_launch, cell()["pull"]).exception()
    assert isinstance(failed, kl.KernelError)
    assert "Cell In[7], line 12" in str(failed)


def _launch(kernel: Any) -> None:
    kl.launch(kernel, dim=3, inputs=[kl.ones(2), kernel_struct(kernel)()], outputs=[kl.zeros(3)])


def kernel_struct(kernel: Any) -> Callable[[], Any]:
    from kernelab.runtime.host.struct_instances import class_of

    return class_of(kernel.definition.signature[1].type)


def test_kernels_of_operators_of_arrays_travel() -> None:
    x = kl.ones(2, requires_grad=True)
    with kl.Tape() as tape:
        y = abs(x * x) ** 1.5
        y += kl.map(kl.sin, y).astype(kl.float64).astype(float)
    kernels = [record.kernel for record in tape.launches]
    assert [kernel.name for kernel in kernels][:3] == ["array_mul", "array_abs", "array_pow"]
    assert all(pickle.loads(pickle.dumps(kernel)) is kernel for kernel in kernels)


def test_arrays_jacobians_and_reports_travel_with_their_bytes_out_of_band() -> None:
    x = kl.ones(1000, requires_grad=True)
    sparse = kl.autograd.jacobian(lambda x: x * x, inputs=[x], sparse=True)
    report = kl.autograd.gradcheck(loss, inputs=[kl.ones(3, requires_grad=True)])
    for thing in (x, sparse):
        buffers: list[pickle.PickleBuffer] = []
        assert len(pickle.dumps(thing, 5, buffer_callback=buffers.append)) < 1500
        again = pickle.loads(
            pickle.dumps(thing, 5, buffer_callback=buffers.append), buffers=buffers[len(buffers) // 2 :]
        )
        assert type(again) is type(thing)
    (one,) = sparse.values()
    (two,) = again.values()
    np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert repr(pickle.loads(pickle.dumps(report))) == repr(report)


def test_a_tape_says_why_it_is_not_pickled_and_what_to_do() -> None:
    with pytest.raises(
        kl.KernelTypeError, match=r"open a tape where the launches run, or hand on a function"
    ):
        pickle.dumps(kl.Tape())


def test_a_rule_of_another_cell_is_an_error_for_it_would_be_left_behind() -> None:
    made = kl.compile("def f(a: float):\n    return a\n", {}, "Cell In[1]")
    pickle.dumps(made["f"])
    kl.compile(
        "@func_grad(f, check=False)\ndef adj_f(a: float, adj_ret: float):\n    adjoint[a] += adj_ret\n", made
    )
    with pytest.raises(kl.KernelTypeError, match=r"its custom derivative adj_f stands in another cell"):
        pickle.dumps(made["f"])


def test_another_version_of_kernelab_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pickle.dumps(weigh)
    monkeypatch.setattr(kl, "__version__", "9.9")
    with pytest.raises(
        kl.KernelValueError, match=r"`cube` was pickled by kernelab 0\S+, and this is kernelab 9\.9"
    ):
        pickle.loads(sent)


def test_a_kernel_is_copied_as_itself() -> None:
    assert copy.deepcopy([weigh, kl.func])[0] is weigh
    assert pickle.loads(pickle.dumps(kl.func)) is kl.func
    assert pickle.loads(pickle.dumps(kl.config)) is kl.config
