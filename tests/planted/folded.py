"""Faults of lowering and of simplification: constants that are taken for neutral, equal or known."""

from tests.planted.faults import LANG, PASSES, Fault

FRONTEND = "kernelab/frontend"
CONSTANTS = ("tests/passes/test_special_constants.py",)
NUMBERS = ("tests/test_random_numbers.py",)

UNROLLED = ("tests/passes/test_unroll.py",)

FOLDED = (
    Fault(
        "a loop that is left before its end is written out",
        PASSES,
        "if stmt not in self.loops or stmt.stop is not None or stmt.storage is not None:",
        "if stmt not in self.loops or stmt.storage is not None:",
        UNROLLED,
    ),
    Fault(
        "a matrix of ones is neutral in a product",
        LANG,
        'case ("mul" | "div", (x, ir.Const(1, Scalar()))) | ("mul", (ir.Const(1, Scalar()), x)) if (',
        'case ("mul" | "div", (x, ir.Const(1))) | ("mul", (ir.Const(1), x)) if (',
        CONSTANTS,
    ),
    Fault(
        "a float plus 0 is that float, also where it is -0.0",
        LANG,
        """("add", (ir.Const(0, Scalar() as t), x)) if t.is_int:""",
        """("add", (ir.Const(0, Scalar() as t), x)):""",
        CONSTANTS,
    ),
    Fault(
        "a float minus -0.0 is that float",
        LANG,
        """case ("sub", (x, ir.Const(0 as value))) if math.copysign(1.0, value) > 0:""",
        """case ("sub", (x, ir.Const(0 as value))):""",
        CONSTANTS,
    ),
    Fault(
        "where takes the other value of a known condition",
        LANG,
        "return x if cond else y",
        "return y if cond else x",
        CONSTANTS,
    ),
    Fault(
        "the partial of a square is that of a cube",
        "kernelab/builtins",
        "return 2.0 * a\n    return chain(b, pow_",
        "return 3.0 * a\n    return chain(b, pow_",
        CONSTANTS,
    ),
    Fault(
        "zeros of either sign are one constant",
        LANG,
        "return self.value != 0 or math.copysign(1.0, self.value) == math.copysign(1.0, other.value)",
        "return True",
        NUMBERS,
    ),
    Fault(
        "literals that are equal are the same, 1 and 1.0 and True",
        FRONTEND,
        "return isinstance(other, Weak) and repr(self.number) == repr(other.number)",
        "return isinstance(other, Weak) and self.number == other.number",
        ("tests/frontend/test_known.py",),
    ),
    Fault(
        "a value that only one branch yields stands for both",
        PASSES,
        "differ = [i for i, (_, a, b) in enumerate(pairs) if a != b]",
        "differ = [i for i, (_, a, b) in enumerate(pairs) if isinstance(b, ir.Var)]",
        NUMBERS,
    ),
    Fault(
        "a loop that may run zero times leaves the constant that its body yields",
        PASSES,
        "if isinstance(count, ir.Const) and count.value > 0:",
        "if True:",
        NUMBERS,
    ),
    Fault(
        "a carry that starts with one constant and goes on with another never changes",
        PASSES,
        "return isinstance(yielded, ir.Const) and yielded == self.atom(stmt.inits[i])",
        "return isinstance(yielded, ir.Const)",
        NUMBERS,
    ),
    Fault(
        "the power of an int leaves out the odd factor",
        FRONTEND,
        'return operate(frame, "mul", [square, base], node, [part, part]) if n % 2 else square',
        "return square",
        NUMBERS,
    ),
)
