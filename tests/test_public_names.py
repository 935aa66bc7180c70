"""The names of ``import kernelab as kl``: all there, on the host what they can be, misspellings answered."""

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import kernelab as kl
from kernelab.lang.types import Mat, Vec, float32, float64


def test_every_public_name_exists() -> None:
    assert [name for name in (*kl.__all__, *dir(kl)) if name != "autograd" and not hasattr(kl, name)] == []


def test_types_and_operations_of_the_language_are_names_of_the_module() -> None:
    assert kl.vec3 == Vec(float32, 3)
    assert kl.float64 == float64
    assert kl.sin(0.5) == kl.sin(np.float32(0.5)) == np.sin(np.float32(0.5))


def test_a_star_brings_the_types_and_hides_no_type_of_python() -> None:
    names: dict[str, object] = {}
    exec("from kernelab import *", names)
    assert {"vec3", "mat33d", "float64", "quat", "int32", "kernel", "tid"} <= names.keys()
    assert not {"bool", "int", "float", "abs", "max", "min", "sum", "round", "pow"} & names.keys()


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("from kernelab import grad", "write kl.func.grad"),
        ("from kernelab import vec3, njit", "write @kl.kernel, or %%kernel"),
        ("from kernelab import zeross", "did you mean zeros"),
        ("from kernelab.func import scan", "write for and if"),
        ("from kernelab.types import ndarray", "did you mean array"),
        ("from kernelab import sparse", "write what you need of it as kernels"),
        ("from kernelab import examples", "copy the file that you need"),
        ("from kernelab.optim import linear", "use SciPy"),
    ],
)
def test_the_import_of_a_missing_name_is_answered(statement: str, hint: str) -> None:
    with pytest.raises(ImportError, match=rf"kernelab[\w.]* has no \w+.*\n  hint: {hint}"):
        exec(statement, {})


def test_a_missing_name_is_absent_where_one_asks_without_an_import() -> None:
    assert not hasattr(kl, "grad")
    assert getattr(kl, "njit", None) is None


def test_a_misspelt_name_is_answered() -> None:
    with pytest.raises(AttributeError, match=r"kernelab has no zeross\n  hint: did you mean zeros"):
        kl.zeross  # noqa: B018


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("autograd.grad", "write kl.func.grad"),
        ("autograd.gradchek", "did you mean gradcheck?"),
        ("func.jacobian", "write kl.autograd.jacobian"),
        ("optim.adam", "did you mean Adam?"),
        ("types.vektor", "did you mean vector?"),
        ("utils.sum", "write x.sum()"),
        ("types.warp_type_to_np_dtype", "write kl.dtype_to_numpy"),
    ],
)
def test_a_name_that_a_module_has_not_is_answered(name: str, instead: str) -> None:
    module, _, missing = name.partition(".")
    with pytest.raises(AttributeError) as told:
        getattr(getattr(kl, module), missing)
    assert f"kernelab.{module} has no {missing}" in str(told.value)
    assert f"hint: {instead}" in str(told.value)


def test_words_of_the_language_mean_nothing_on_the_host_however_they_are_called() -> None:
    with pytest.raises(kl.KernelTypeError, match=r"matrix\(\) means something only inside a kernel"):
        kl.matrix(shape=(3, 3), dtype=float)
    with pytest.raises(AttributeError, match=r"kernelab has no math.*\n  hint: write kl.sin"):
        kl.math  # noqa: B018


def test_thread_indices_exist_only_in_kernels() -> None:
    with pytest.raises(kl.KernelTypeError, match="only inside a kernel"):
        kl.tid()


def test_constants_are_what_they_are() -> None:
    assert kl.constant(3) == kl.static(3) == 3


def test_programs_may_initialise_and_synchronize() -> None:
    kl.init()
    kl.synchronize()


def test_devices_are_listed() -> None:
    assert [str(device) for device in kl.get_devices()] == ["cpu"]
    assert kl.get_device().is_cpu
    assert not kl.get_device("cpu").is_cuda


def test_vectors_and_matrices_of_any_size_have_a_type() -> None:
    assert kl.types.vector(length=6, dtype=float) == Vec(float32, 6)
    assert kl.types.matrix(shape=(2, 3), dtype=kl.float64) == Mat(float64, 2, 3)
    assert kl.types.vec2 == kl.vec2
    with pytest.raises(kl.KernelValueError, match="at most 144 numbers, not 145"):
        kl.types.vector(145, float)
    with pytest.raises(kl.KernelValueError, match="not -1"):
        kl.types.matrix((-1, -1), float)


def test_the_settings_choose_what_new_tapes_do_with_overwritten_arrays() -> None:
    x, y = kl.ones(1, requires_grad=True), kl.zeros(1, requires_grad=True)
    square = kl.compile("def square(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] ** 2")[
        "square"
    ]
    kl.config.verify_autograd_array_access = True
    try:
        with kl.Tape():
            square[1](x, y)
            with pytest.warns(kl.KernelWarning, match="overwritten"):
                x.fill_(2)
    finally:
        kl.config.verify_autograd_array_access = False


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(
        AttributeError, match=r"there is no setting max_unrol\n  hint: did you mean max_unroll"
    ):
        kl.config.max_unrol = 3


def test_kernels_are_themselves_when_copied_and_tapes_are_not_copied() -> None:
    made = kl.compile("def f(a: float):\n    return a\n\ndef k(x: array[float]):\n    x[tid()] = f(1.0)\n")
    held = {"kernel": made["k"], "function": made["f"], "data": kl.ones(2)}
    copied = copy.deepcopy(held)
    assert copied["kernel"] is copy.copy(made["k"]) is made["k"]
    assert copied["function"] is made["f"]
    assert copied["data"] is not held["data"]
    assert pickle.loads(pickle.dumps(made["k"])) is made["k"]
    with pytest.raises(kl.KernelTypeError, match=r"a tape cannot be copied or pickled: gradients go to"):
        copy.deepcopy(kl.Tape())


def test_a_cotangent_by_a_name_is_answered() -> None:
    x, y = kl.ones(1, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kl.copy(y, x)
    with pytest.raises(kl.TapeError, match=r"a str is none\n(.*\n)*  hint: write backward\(grads=\{y: "):
        tape.backward(grads={"y": 1.0})  # type: ignore[dict-item]


@pytest.mark.parametrize("face", [kl.autograd, kl.config, kl.func, kl.optim, kl.teach, kl.types, kl.utils])
def test_tab_offers_every_function_of_a_module_that_users_import(face: Any) -> None:
    written = {
        name
        for name, value in vars(face).items()
        if inspect.isfunction(value) and value.__module__ == face.__name__ and not name.startswith("_")
    }
    assert written <= {*dir(face)}
