"""Objects of the user's that raise where one asks what they are disturb nothing that does not use them."""

import json
import weakref
from typing import Any

import pytest

import kernelab as kl
from kernelab.errors import KernelError
from kernelab.jupyter.channel import reply
from tests.jupyter.conftest import Notebook
from tests.jupyter.test_checking import FILES, _replied

DEAD = """
import weakref
class Thing: pass
thing = Thing()
dead = weakref.proxy(thing)
del thing"""


class NoClass:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("its class")

    @__class__.setter
    def __class__(self, _: Any) -> None: ...


class NoAttributes:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class NoType(metaclass=Meta):
    pass


def dead() -> Any:
    return weakref.proxy(NoType())


BROKEN = {
    "dead": dead(),
    "no_class": NoClass(),
    "no_attributes": NoAttributes(),
    "no_type": NoType(),
    "a_class": NoType,
    "inside": [dead()],
    "items": (dead(),),
}


def test_cells_run_without_a_word_beside_a_dead_proxy(notebook: Notebook) -> None:
    notebook.run(DEAD)
    outcome = notebook.run("%%kernel --quiet\ndef put(x: array[float]):\n    x[tid()] = 2.0")
    assert (outcome.error_name, outcome.stream, outcome.traceback) == ("", "", "")
    outcome = notebook.run("x = kl.zeros(2)\nput[2](x)\nx.list()")
    assert (outcome.text, outcome.stream) == ("[2.0, 2.0]", "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_pages_have_their_answers_beside_them(file: Any) -> None:
    golden = json.loads(file.read_text())
    names: dict[str, Any] = {"kl": kl, **BROKEN}
    for cell in golden["notebook"]:
        names |= kl.compile(cell, names)
    exec(golden.get("python", ""), names)
    replied = json.loads(json.dumps(reply(golden["request"], names)))
    assert replied | ({"style": "..."} if "style" in replied else {}) == _replied(golden)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize(
    "line",
    [
        "x[0] = {}",
        "x[0] = {}.a",
        "x[0] = {}[0]",
        "x[0] = float({})",
        "y: {} = x[0]",
        "x[0] = static({})",
        "x[0] = {}s",
    ],
)
def test_a_kernel_that_names_one_is_refused(name: str, line: str) -> None:
    with pytest.raises(KernelError):
        kl.compile(f"def k(x: array[float]):\n    {line.format(name)}\n", BROKEN)
    with pytest.raises(KernelError):
        kl.compile(f"def k(x: array[{name}]):\n    x[0] = 1.0\n", BROKEN)
