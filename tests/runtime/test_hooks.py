import kernelab  # noqa: F401 (provides the hooks)
from kernelab.runtime.context import hooks


def test_importing_kernelab_provides_every_hook() -> None:
    every = {name: hook for name, hook in vars(hooks).items() if isinstance(hook, hooks.Hook)}
    assert [name for name, hook in every.items() if not hook.is_provided] == []
