from importlib import import_module

import pytest

import kernelab  # noqa: F401 (says who provides the hooks)
from kernelab import hooks

EVERY = {name: hook for name, hook in vars(hooks).items() if isinstance(hook, hooks.Hook)}


@pytest.mark.parametrize("name", EVERY)
def test_a_hook_is_provided_once_its_module_is_imported(name: str) -> None:
    hook = EVERY[name]
    import_module(hook.module or "kernelab")
    assert hook.is_provided
