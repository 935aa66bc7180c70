"""What stands behind a dot in a kernel: attributes of the user's modules, classes and objects."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import kernelab as kl

SCENE = SimpleNamespace(dt=0.5, water=SimpleNamespace(steps=3))


class Config:
    """Constants and a function, as programs for Warp keep them together."""

    gain = 2.0
    table = [1.0]  # noqa: RUF012 (what no kernel can use)
    unset = None

    @kl.func
    def length(x: float):  # type: ignore[no-untyped-def]  # noqa: N805
        return 3.0 * x


def first(kernel: Any, count: int = 1) -> list[float]:
    x = kl.zeros(count, dtype=float)
    kl.launch(kernel, 1, inputs=[x])
    return x.list()


def test_attributes_of_classes_and_objects_are_captured() -> None:
    @kl.kernel
    def read(x: kl.array[float]):  # type: ignore[no-untyped-def]
        for _ in range(SCENE.water.steps):
            x[0] += Config.gain
        x[1] = Config.length(SCENE.dt)

    assert first(read, 2) == [6.0, 1.5]
    assert dict(read.definition.captured)["SCENE.dt"] == 0.5


def test_a_kernel_made_in_a_method_reads_its_object() -> None:
    class Solver:
        def __init__(self, gain: float) -> None:
            self.gain = gain

            @kl.kernel
            def read(x: kl.array[float]):  # type: ignore[no-untyped-def]
                x[0] = self.gain

            self.read = read

    assert [first(Solver(gain).read) for gain in (1.0, 2.0)] == [[1.0], [2.0]]


def test_a_function_of_a_users_module_is_not_the_operation_of_its_name() -> None:
    tools: Any = ModuleType("tools")
    tools.smoothstep = kl.compile("def smoothstep(a: float, b: float, x: float):\n    return 100.0 + x")[
        "smoothstep"
    ]
    tools.clamp = lambda x: x
    kernel = kl.compile(
        "def read(x: array[float]):\n    x[0] = tools.smoothstep(0.0, 1.0, 0.5)", {"tools": tools}
    )
    assert first(kernel["read"]) == [100.5]
    with pytest.raises(kl.KernelNameError, match=r"tools\.clamp has no meaning in a kernel") as refused:
        kl.compile("def read(x: array[float]):\n    x[0] = tools.clamp(x[0])", {"tools": tools})
    assert "with @func" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Config.gian", "Config has no gian\n.*\n.*\n.*\n *hint: did you mean gain"),
        ("Config.table", "Config.table has no meaning in a kernel"),
        ("Config.unset", "Config.unset has no meaning in a kernel"),
        ("Config", "x holds float32, not the class Config"),
        ("SCENE", "x holds float32, not the object SCENE"),
        ("Config()", "Config is the class Config, not a function"),
        ("pow(2.0)", r"\*\* does not take float"),
    ],
)
def test_what_is_no_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(kl.KernelError, match=message):
        kl.compile(f"def read(x: array[float]):\n    x[0] = {text}", {"Config": Config, "SCENE": SCENE})
