"""What is made once for a key is one object for all threads."""

import threading
from typing import Any

import pytest

import kernelab as kl
from kernelab import language
from kernelab.frontend.definitions.kernels import GenericKernel
from kernelab.runtime.ops.operands import made_once


def test_threads_that_ask_at_the_same_time_get_the_same_object() -> None:
    others, found = list[threading.Thread](), list[object]()

    @made_once(8)
    def make(key: str) -> object:
        if not others:  # another thread asks while this one makes it
            others.append(threading.Thread(target=lambda: found.append(make(key))))
            others[0].start()
            others[0].join(timeout=0.3)
        return object()

    own = make("a")
    others[0].join()
    assert found == [own]
    assert make("a") is own and make("b") is not own


def asked_meanwhile(owner: object, name: str, ask: Any, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """What `ask` returns, and what it returns to another thread while the function `name` makes it."""
    make, others = getattr(owner, name), list[Any]()

    def made(*given: Any) -> Any:
        result = make(*given)
        patch.setattr(owner, name, make)
        thread = threading.Thread(target=lambda: others.append(ask()))
        thread.start()
        thread.join()
        return result

    patch.setattr(owner, name, made)
    return ask(), others[0]


def test_a_word_of_the_language_is_one_object_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(kl), "cos", raising=False)
    first, second = asked_meanwhile(language, "word", lambda: kl.cos, monkeypatch)
    assert first is second is kl.cos


def test_a_generic_kernel_has_one_instance_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kl.compile("def double(x: array[Any]):\n    i = tid()\n    x[i] *= x.dtype(2)\n")["double"]
    types = [kl.array([1.0]).type]
    first, second = asked_meanwhile(GenericKernel, "_lowered", lambda: kernel.instance(types), monkeypatch)
    assert first is second is kernel.instance(types)


def test_what_is_derived_of_a_program_is_one_object_for_all_threads() -> None:
    kernel = kl.compile("def zero(x: array[float]):\n    i = tid()\n    x[i] = 0.0\n")["zero"]
    others: list[object] = []

    def make() -> object:
        if not others:
            others.append(None)
            others.append(kernel.program.once("key", make))
        return object()

    assert kernel.program.once("key", make) is others[1]
