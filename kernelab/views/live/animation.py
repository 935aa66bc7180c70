"""An animation of arrays: a picture that plays by itself wherever HTML is shown."""

from collections.abc import Iterable
from typing import Any

from kernelab.errors import Diagnostic, KernelTypeError, KernelValueError
from kernelab.runtime.array.array import array
from kernelab.runtime.context.conversion import described
from kernelab.runtime.context.recorder import unrecorded
from kernelab.runtime.host.structarray import structarray
from kernelab.views.pages.display import View
from kernelab.views.tape.arrays import animation_view


def animation(frames: Any, fps: float = 25.0) -> View:
    """Frames shown one after another, `fps` a second and again from the start: arrays of one shape and dtype.

    `frames` are arrays, of NumPy too, or one array whose first axis is time.  A frame of one dimension is a
    curve, one of two an image, as when the array is the value of a cell; all have the same scale.  An array
    that changes has to be copied for each frame: ``frames.append(x.copy())``.  The view is a picture without
    scripts (an animated PNG, or SVG).  Raises KernelTypeError or KernelValueError for frames that differ.
    """
    if not isinstance(frames, Iterable):
        message = f"animation takes the frames in a list, not {described(frames)}"
        raise KernelTypeError(Diagnostic(message, code="frames", hint="write kl.animation([x0, x1, ...])"))
    if not (isinstance(fps, int | float) and 0.02 <= fps <= 1000):
        hint = "write fps=25"
        raise KernelValueError(
            Diagnostic(f"fps={fps!r} is no number of frames a second", code="fps", hint=hint)
        )
    pictures = list(frames)
    if len(pictures) > 1 and all(frame is pictures[0] for frame in pictures):
        message = "the frames are one array, which shows its last elements in each"
        hint = "append copies: frames.append(x.copy())"
        raise KernelValueError(Diagnostic(message, code="frames", hint=hint))
    with unrecorded():
        taken = [array(frame, device="cpu") for frame in pictures]
    kinds = {(frame.shape, frame.dtype) for frame in taken}
    if not taken or len(kinds) > 1:
        kinds_text = " and ".join(f"{dtype} {shape}" for shape, dtype in sorted(kinds, key=str)) or "none"
        hint = "all have the same shape and dtype"
        raise KernelValueError(Diagnostic(f"the frames are {kinds_text}", code="frames", hint=hint))
    first = taken[0]
    if isinstance(first, structarray) or not first.size:
        what = f"arrays of {first.dtype}" if first.size else "arrays without elements"
        raise KernelTypeError(
            Diagnostic(f"{what} have no picture", code="frames", hint="pass a field of them")
        )
    return View(animation_view(taken, fps))
