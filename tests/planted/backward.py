"""Faults of a tape's own backward pass: `gradcheck_tape` itself has to fail for each."""

from tests.planted.faults import AUTODIFF, RUNTIME, Fault

CHECK = ("tests/autodiff/test_gradcheck_backward.py",)

BACKWARD = (
    Fault(
        "the sweep leaves the first record out", AUTODIFF, "if i in live:", "if i in live and i != 0:", CHECK
    ),
    Fault(
        "the adjoint of one kernel does not run",
        AUTODIFF,
        'b"".join(self.adjoint_parts(adjoints, sources))',
        "b\"\".join(self.adjoint_parts(Adjoints() if self.kernel.name == 'scale' else adjoints, sources))",
        CHECK,
    ),
    Fault(
        "arrays over one memory have adjoints of their own",
        AUTODIFF,
        "packed_in(adjoints.memory, self.outline.pick_active(self.arguments))",
        "packed_in({one.allocation: adjoints.memory.__missing__(one.allocation) for one in self.active},"
        " self.active)",
        CHECK,
    ),
    Fault(
        "an adjoint is let go of where it is needed last",
        AUTODIFF,
        "for memory, i in self.first.items():\n            if memory not in shared:",
        "for memory, i in self.first.items():\n            i += 1\n            if memory not in shared:",
        CHECK,
    ),
    Fault(
        "a copy adds its adjoint to the source and keeps it",
        AUTODIFF,
        "            level.move(source, bar, add=True)\n            level.clear(bar)",
        "            level.move(source, bar, add=True)",
        CHECK,
    ),
    Fault(
        "an overwrite by the host passes adjoints on",
        AUTODIFF,
        "if dest_bar is not None:\n            cleared(dest_bar)",
        "assert True",
        CHECK,
    ),
    Fault(
        "a gradient is published after the record before",
        AUTODIFF,
        "self.after.setdefault(i, [])",
        "self.after.setdefault(max(i - 1, 0), [])",
        CHECK,
    ),
    Fault(
        "a leaf's gradient is published once, and then stays",
        AUTODIFF,
        "np.add(values, more, out=values)",
        "values[...] = values if values.any() else more",
        CHECK,
    ),
    Fault(
        "an adjoint reads elements that were overwritten in part",
        AUTODIFF,
        "(self._in_order(values) if isinstance(lost, slice) else values)[lost] = kept",
        "pass",
        CHECK,
    ),
    Fault(
        "who waits for a memory to change is not told",
        RUNTIME,
        "self.alert(change)  # who",
        "# who",
        CHECK,
    ),
    Fault(
        "a snapshot that is made in front of a write does not know of it",
        AUTODIFF,
        "watch.begin(target)",
        "watch.begin(None)",
        CHECK,
    ),
    Fault(
        "what a write destroys is not copied",
        AUTODIFF,
        "Copied(needed, needed.allocation.copied(low, high))",
        "Copied(needed, bytearray(high - low))",
        CHECK,
    ),
    Fault(
        "of the records that wait for a memory only the first is told",
        AUTODIFF,
        "waiting.append(record)",
        "pass",
        CHECK,
    ),
    Fault(
        "what a whole write destroys is copied after it",
        AUTODIFF,
        "copy_bytes(memory, 0, source, low - source.address, high - low)",
        "pass",
        CHECK,
    ),
    Fault(
        "the share of a launch to a sum of halves is counted again",
        AUTODIFF,
        "bar[{at}] = {half}(0.0)",
        "pass",
        CHECK,
    ),
    Fault(
        "a sum of halves leaves out what is still in the adjoint",
        AUTODIFF,
        "{half}(total[{at}] + float32(bar[{at}]))",
        "{half}(float32(bar[{at}]))",
        CHECK,
    ),
    Fault(
        "the adjoints of what a checkpoint returned do not go into it",
        AUTODIFF,
        "bars.share(second.allocation, adjoints.show(first.allocation))",
        "pass",
        CHECK,
    ),
    Fault(
        "the adjoints of what a checkpoint read do not come out of it",
        AUTODIFF,
        "for elements in (*self.outside, *self.reached):",
        "for elements in self.outside:",
        CHECK,
    ),
    Fault(
        "a checkpoint runs again on what stands there now",
        AUTODIFF,
        "self.elements.host()[...] = saved.seen()",
        "pass",
        CHECK,
    ),
)
