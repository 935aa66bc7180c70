"""Functions of numbers, run on the CPU at many points at once: a kernel that loads, computes and stores."""

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelab.lang.build import Builder, type_of
from kernelab.lang.ir import Atom, Function, Var
from kernelab.lang.types import Array, int32, scalar_of, shape_of
from kernelab.passes.common.copying import Copier
from kernelab.passes.common.scalarise import scalarise
from kernelab.runtime.memory.device import CPU

Numpy = np.ndarray[Any, Any]


def evaluate(function: Function, *points: Numpy) -> list[Numpy]:
    """What a function without calls yields; each argument holds a point a row, components in the other axes.

    Raises BuildError where there is no compiler, and the function's own errors.
    """
    count = len(points[0])
    results = [
        np.zeros((count, *shape_of(type_of(atom))), scalar_of(type_of(atom)).dtype)
        for atom in function.body.yields
    ]
    kernel = _over_arrays(function)
    arguments = [np.ascontiguousarray(point) for point in points] + results
    entry = CPU.backend.build([scalarise(kernel)])[kernel.name]
    packed = struct.pack("=4q", count, 1, 1, 1)
    for array in arguments:
        packed += struct.pack("=3q", array.ctypes.data, count, array.strides[0])
    entry((ctypes.c_longlong * (len(packed) // 8)).from_buffer_copy(packed))
    return results


def _over_arrays(function: Function) -> Function:
    """The kernel whose thread i evaluates the function at point i."""
    arrays = [Var(Array(type_of(param), 1), param.hint, param.span) for param in function.params]
    types = [type_of(atom) for atom in function.body.yields]
    outs = [Var(Array(type, 1), f"result_{k}", function.span) for k, type in enumerate(types, 1)]
    thread, builder = Var(int32, "i", function.span), Builder()
    env: dict[Var, Atom] = {}
    for param, array in zip(function.params, arrays, strict=True):
        env[param] = builder.load(array, [thread], param.hint)
    copier = Copier(builder, env)
    copier.stmts(function.body)
    found: Sequence[Atom] = copier.atoms(function.body.yields)
    for out, atom in zip(outs, found, strict=True):
        builder.store(out, [thread], atom)
    name = f"{function.name}_pointwise"
    return Function(name, (*arrays, *outs), builder.close(), (thread,), function.span)
