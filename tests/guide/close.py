"""How the programs of the guide look at gradients."""

from typing import Any

import numpy as np

import kernelab as wp


def gradient(x: wp.array) -> np.ndarray[Any, Any]:
    assert x.grad is not None
    return np.asarray(x.grad.numpy())


def close(found: object, wanted: object, rtol: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=rtol, atol=1e-6)
