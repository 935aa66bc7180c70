from importlib import import_module

import pytest

from kernelab import hooks

EVERY = {name: hook for name, hook in vars(hooks).items() if isinstance(hook, hooks.Hook)}


@pytest.mark.parametrize("name", EVERY)
def test_the_module_that_a_hook_names_provides_its_function(name: str) -> None:
    hook = EVERY[name]
    import_module(hook.module)
    function = hook._function
    assert function is not None
    assert function.__module__ == hook.module
