"""The arrays that tests of tapes begin and end with."""

import kernelab as kl


def leaf(*values: float) -> kl.array:
    """An array of floats to differentiate with respect to."""
    return kl.array(values, dtype=float, requires_grad=True)


def result(count: int = 1) -> kl.array:
    """Floats for a kernel to write, with gradients."""
    return kl.zeros(count, dtype=float, requires_grad=True)


def gradient(x: kl.array) -> list[float]:
    """The gradient, which has to be there."""
    assert x.grad is not None
    return x.grad.list()
