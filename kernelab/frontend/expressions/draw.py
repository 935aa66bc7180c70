"""Drawing random numbers: a call leaves the state after its draws in the variable that it was given."""

import ast

from kernelab.frontend.meaning.frame import Frame
from kernelab.frontend.meaning.meanings import Typed
from kernelab.frontend.syntax.advancing_calls import draws, state_of
from kernelab.lang.types import uint32


def advance(frame: Frame, name: str, node: ast.Call) -> None:
    """Leave the state after the draws of `name` in the variable that the call names."""
    count = draws(name)
    if not count:
        return
    state = state_of(node)
    held = frame.env.get(state.id) if isinstance(state, ast.Name) else None
    if not isinstance(state, ast.Name) or not isinstance(held, Typed) or held.type != uint32:
        raise frame.error(
            state or node,
            f"{name} advances its state, which must be a variable",
            hint=f"write state = {frame.places.text(state or node)} first, then {name}(state)",
        )
    atom = held.atom
    for _ in range(count):
        atom = frame.builder.apply("rand_next", atom, hint=state.id)
    frame.env[state.id] = Typed(atom)
    frame.set_at[state.id] = frame.places(state)
