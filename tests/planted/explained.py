"""Faults in what explains a gradient: functions of numbers, textbook forms, precision, negative indices."""

from tests.planted.faults import AUTODIFF, CONTRACT, PASSES, RUNTIME, Fault

BACKEND, CODEGEN, FRONTEND = (f"kernelab/{name}" for name in ("backend", "codegen", "frontend"))
CALLS = ("tests/runtime/test_function_calls.py",)
CUSTOM = (f"{CONTRACT}custom_vjp.py",)
TEXTBOOK = ("tests/codegen/test_textbook.py",)
PRECISION = (f"{CONTRACT}precision.py",)
KINKS = ("tests/autodiff/test_gradcheck.py",)
TRACES = ("tests/autodiff/test_threadrun.py",)
NEGATIVE = ("tests/conformance/test_negative_index.py",)

EXPLAINED = (
    Fault(
        "machine code does not note a computed index below zero",
        CODEGEN,
        'noted = "" if isinstance(index, ir.Const) else f" {self.noted(site)}"',
        'noted = ""',
        NEGATIVE,
    ),
    Fault(
        "vector code does not note an index that is read, below zero",
        CODEGEN,
        "self.line(self.noted(site_of(span, array)))",
        "pass",
        NEGATIVE,
    ),
    Fault(
        "the interpreter does not note a computed index below zero",
        BACKEND,
        "if any(np.any(i < 0) for i in computed):",
        "if False:",
        NEGATIVE,
    ),
    Fault(
        "a device keeps to itself that an index was below zero",
        CODEGEN,
        'noted = ["  if (wrapped) note(status, wrapped);"] if outline.wraps else []',
        "noted = list[str]()",
        NEGATIVE,
    ),
    Fault(
        "an index below zero in a slice is not noted",
        FRONTEND,
        'b.check(b.apply("ge", k, zero(type)), "negative", var.hint)',
        "pass",
        NEGATIVE,
    ),
    Fault(
        "each launch warns again of an index below zero",
        BACKEND,
        "if span.line not in span.source.told:",
        "if span.line:",
        NEGATIVE,
    ),
    Fault(
        "a smooth minimum is taken for a kink",
        AUTODIFF,
        "mask &= np.abs(closer - bend) <= STAYS * np.abs(bend)",
        "pass",
        KINKS,
    ),
    Fault(
        "the slope to the left of a kink has the wrong sign",
        AUTODIFF,
        "2.0 * (y[0] + y[1] - y[2] - y[3]) / steps",
        "2.0 * (y[0] - y[1] - y[2] + y[3]) / steps",
        KINKS,
    ),
    Fault(
        "a float of Python is not a number to differentiate with respect to",
        AUTODIFF,
        "return float32 if isinstance(value, float) else None",
        "return None",
        (f"{CONTRACT}functions_of_numbers.py",),
    ),
    Fault(
        "what a function returns has no gradient",
        RUNTIME,
        "requires_grad=traced and has_derivative(formal.type.elem)",
        "requires_grad=False",
        CALLS,
    ),
    Fault(
        "a number that a function returns is the array that holds it",
        RUNTIME,
        "return results[0] if len(results) == 1 else tuple(results)",
        "return tuple(results)",
        CALLS,
    ),
    Fault(
        "the adjoints of custom_vjp come in the opposite order",
        AUTODIFF,
        "several = list(returned) if isinstance(returned, tuple | list) else [returned]",
        "several = list(returned)[::-1] if isinstance(returned, tuple | list) else [returned]",
        CUSTOM,
    ),
    Fault(
        "the derivative of custom_vjp gets results for cotangents",
        AUTODIFF,
        "rest if takes_results else rest[results:]",
        "rest if takes_results else rest[:results]",
        CUSTOM,
    ),
    Fault(
        "NumPy in a second derivative of custom_vjp is a constant",
        AUTODIFF,
        "if values is not None and (recorder := RECORDER.get()) is not None:",
        "if False:",
        CUSTOM,
    ),
    Fault(
        "a textbook's adjoint forgets what a value was used for before",
        PASSES,
        "cotangents[target] = added.out\n        added = replace",
        "pass\n        added = replace",
        TEXTBOOK,
    ),
    Fault(
        "a textbook's adjoint does not clear what a store overwrote",
        PASSES,
        "self.builder.store(self.bars[stmt.array], indices, zero(share.type))",
        "pass",
        TEXTBOOK,
    ),
    Fault(
        "a line has the digits of its best thread",
        AUTODIFF,
        "error / np.abs(b).max(axis=1, initial=0.0)",
        "error / np.abs(b).max(initial=0.0)",
        PRECISION,
    ),
    Fault(
        "lost digits are looked for in the backward pass only",
        AUTODIFF,
        "if back is not None and forth is not None and 2.0 * forth.lost >= back.lost:",
        "if False:",
        PRECISION,
    ),
    Fault(
        "a record beside float64 starts with cotangents of zero",
        AUTODIFF,
        "_arguments(launch, again), launch.bars(adjoints))",
        "_arguments(launch, again), launch.bars(Adjoints()))",
        TRACES,
    ),
)
