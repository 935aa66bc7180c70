"""Programs on numbers of all widths, full of constants that simplification and folding know.

Every value has the type that its name says, so that the same text run as Python on NumPy's scalars gives the
same numbers to the last bit.  A literal stands beside a value that has a type; where Python would hand it on
as it is, in a conditional expression, the whole is given its type.
"""

from collections.abc import Sequence
from functools import partial

from hypothesis import strategies as st

from tests.strategies.scope import Drawing, indented

GRID = (6,)
FLOATS = ("float16", "float32", "float64")
INTS = ("int8", "uint8", "int16", "int32", "uint32", "int64")
NAMES = {
    "float16": ("h", "h2"),
    "float32": ("f", "f2"),
    "float64": ("d", "d2"),
    "int8": ("s", "s2"),
    "uint8": ("b", "b2"),
    "int16": ("j", "j2"),
    "int32": ("k", "k2"),
    "uint32": ("u", "u2"),
    "int64": ("l", "l2"),
    "bool": ("t", "t2"),
}
TYPES = (*FLOATS, *INTS)
SPECIAL = ("0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "-0.5", "INF", "-INF", "NAN", "0", "1", "-1", "3")
ALIKE = (("0.0", "-0.0"), ("-0.0", "0"), ("1", "1.0"), ("NAN", "0.0"), ("INF", "-INF"))
ENDS = {
    "int8": ("-128", "127"),
    "uint8": ("255",),
    "int16": ("-32768", "32767"),
    "int32": ("-2147483648", "2147483647"),
    "uint32": ("4294967295",),
    "int64": ("-9223372036854775808", "9223372036854775807", "2147483648"),
}
BITS = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32, "uint32": 32, "int64": 64}
RANGES = ("3", "0", "k % 4", "2, -2, -1", "-1, 3, 2", "5, 0, -(k % 3) - 1", "k % 3, k2 % 4")
HELPERS = """class Pair:
    f: float32 = 1.0
    k: int32 = -1

def hit(hits: array[int], i: int, k: int):
    hits[i] = 3 * hits[i] + k
    return hits[i] % 2 == 0

def chosen(p: float32, q: float32 = -0.0, r: int32 = 1):
    p, q = float32(p), float32(q)
    if p > q:
        if r > 0:
            if p * 1.0 == q + 1.0:
                return p - 0.0
            return q
        p += 1.0
    elif r == 1:
        q = 0 * p
    else:
        return -q
    return p * float32(r) + q

def chosen_int(p: int32, q: int32 = 0):
    p, q = int32(p), int32(q)
    for c in (0, 1, -1, 7):
        if p == c:
            return q - c
        if p % 5 in (c, q, 3):
            q += c
    return p
"""


class Numbers(Drawing):
    """Draws statements and expressions on variables that are `NAMES`."""

    fresh = 0

    def literal(self, type: str) -> str:
        """A literal that a type holds, of any kind that stands for it."""
        if type == "bool":
            return str(self.one(["True", "False"]))
        if type in FLOATS:
            return str(self.one(SPECIAL))
        signed = () if type.startswith("u") else ("-1", "-2", "-7")
        return str(self.one(["0", "1", "2", "3", "7", *signed, *ENDS[type]]))

    def operand(self, type: str, depth: int) -> str:
        """A literal, or an expression of a type."""
        return f"({self.literal(type)})" if self.number(0, 2) == 2 else self.value(type, depth)

    def leaf(self, type: str) -> str:
        return str(self.one([*NAMES[type], *NAMES[type], f"{type}({self.literal(type)})"]))

    def value(self, type: str, depth: int) -> str:
        """An expression that has a type of its own."""
        if depth == 0 or self.number(0, 5) == 0:
            return self.leaf(type)
        if type == "bool":
            return self.truth(depth)
        return self.floating(type, depth - 1) if type in FLOATS else self.whole(type, depth - 1)

    def pair(self, type: str, depth: int) -> tuple[str, str]:
        """Two operands, one of which has the type for sure."""
        first, second = self.value(type, depth), self.operand(type, depth)
        return (first, second) if self.chance() else (second, first)

    def floating(self, type: str, depth: int) -> str:
        kind = self.number(0, 9)
        if kind <= 4:
            first, second = self.pair(type, depth)
            return f"({first} {self.one('+-*')} {second})"
        if kind == 5:
            first, second = self.value(type, depth), self.value(type, depth)
            return self.one(
                [f"({first} / {second})", f"({first} ** 2)", f"({first} ** 1)", f"(1.0 / {second})"]
            )  # type: ignore[no-any-return]
        if kind == 6:
            return f"{self.one(['-', 'abs', 'floor', 'sign', '+'])}({self.value(type, depth)})"
        if kind == 7 and type == "float32":
            first, second = self.pair(type, depth)
            return self.one(
                [
                    f"chosen({first}, {second})",
                    f"chosen({first})",
                    f"chosen({second}, r={self.value('int32', depth)})",
                ]
            )  # type: ignore[no-any-return]
        if kind == 8:
            return f"{type}({self.value(self.one([*FLOATS, 'int8', 'int32', 'bool']), depth)})"
        return self.either(type, depth)

    def whole(self, type: str, depth: int) -> str:
        kind = self.number(0, 10)
        if kind <= 3:
            first, second = self.pair(type, depth)
            return f"({first} {self.one(['+', '-', '*', '&', '|', '^'])} {second})"
        if kind == 4:
            by = self.one([n for n in ("1", "2", "3", "7", "-1", "-3") if type[0] != "u" or n[0] != "-"])
            divisor = self.one([f"({by})", f"({self.value(type, depth)} | 1)"])
            return (
                f"({self.operand(type, depth)} {self.one(['//', '%'])} {divisor})"
                if "|" in divisor
                else (f"({self.value(type, depth)} {self.one(['//', '%'])} {divisor})")
            )
        if kind == 5:
            by = self.one([str(k) for k in (0, 1, 3, BITS[type] - 1, BITS[type])])
            return f"({self.value(type, depth)} {self.one(['<<', '>>'])} {by})"
        if kind == 6:
            return f"({self.one('~-+')}{self.value(type, depth)})"
        if kind == 7 and type == "int32":
            first, second = self.pair(type, depth)
            return f"chosen_int({first}, {second})"
        if kind == 8:
            return f"({self.value(type, depth)} ** {self.number(1, 6)})"
        if kind == 9:
            return f"{type}({self.value(self.one([*TYPES, 'bool']), depth)})"
        return self.either(type, depth)

    def either(self, type: str, depth: int) -> str:
        """One of two values."""
        first, second = self.pair(type, depth)
        cond = self.value("bool", depth)
        low, high = sorted((self.literal(type), self.literal(type)), key=lambda t: (t == "NAN", t))
        kinds = [f"{first} if {cond} else {second}", f"where({cond}, {first}, {second})"]
        kinds += [
            f"min({first}, {second})",
            f"max({first}, {second})",
            f"clamp({self.value(type, depth)}, {low}, {high})",
        ]
        return f"{type}({self.one(kinds)})"

    def truth(self, depth: int) -> str:
        type, inner = self.one(TYPES), depth - 1
        first, second = self.pair(type, inner)
        signs = ["<", "<=", ">", ">=", "==", "!="]
        kind = self.number(0, 7)
        if kind <= 2:
            return f"({first} {self.one(signs)} {second})"
        if kind == 3:
            middle = f"{self.one(signs)} {self.value(type, inner)} {self.one(signs)}"
            return f"({self.literal(type)} {middle} {second})"
        if kind == 4:
            return f"(not {self.value('bool', inner)})"
        if kind == 5:
            # Python finds the same NaN in a tuple, though it does not equal itself.
            draw = self.literal if type in FLOATS else partial(self.operand, depth=inner)
            found = ", ".join(draw(type) for _ in range(self.number(1, 3)))
            return f"({self.value(type, inner)} {self.one(['in', 'not in'])} ({found},))"
        joined = f" {self.one(['and', 'or'])} "
        parts = [self.value("bool", inner), f"hit(hits, i, {self.number(0, 3)})"]
        return f"({joined.join(parts if self.chance() else parts[::-1])})"

    # ------------------------------------------------------------------------------------- statements

    def block(self, depth: int, size: int, in_loop: bool = False) -> list[str]:
        return [line for _ in range(self.number(1, size)) for line in self.statement(depth, in_loop)]

    def statement(self, depth: int, in_loop: bool) -> list[str]:
        type = self.one([*TYPES, "bool"])
        first, second = NAMES[type]
        kind = self.number(0, 14 if depth else 6)
        match kind:
            case 0 | 1:
                return [f"{self.one([first, second])} = {self.value(type, 3)}"]
            case 2:
                new = self.one([second, self.value(type, 2)])
                return [f"{first}, {second} = {new}, {first}"]
            case 3 if type != "bool":
                signs = ["+", "-", "*"] if type in FLOATS else ["+", "-", "*", "&", "|", "^"]
                return [f"{first} {self.one(signs)}= {self.operand(type, 2)}"]
            case 4:
                changed = f"z.f {self.one(['=', '+=', '*='])} {self.value('float32', 2)}"
                made = self.one(
                    ["z = Pair()", f"z = Pair(k={self.value('int32', 1)})", "z = y", "y = z", changed]
                )
                return [made, "f2 = float32(z.f)", "k2 = int32(z.k)"]
            case 5:
                return [f"{first} = {second} = {self.value(type, 2)}"]
            case 7 | 8:
                return self.branch(depth, in_loop)
            case 9 | 10:
                return self.loop(depth)
            case 6:
                return self.meeting()
            case 13 | 14:
                return self.weak()
            case 11 if in_loop:
                return [f"if {self.value('bool', 2)}:", f"    {self.one(['break', 'continue'])}"]
            case 12:
                return [f"if {self.value('bool', 2)}:", "    e[i] = float64(d)", "    return"]
            case _:
                return [f"{first} = {self.value(type, 2)}"]

    def meeting(self) -> list[str]:
        """Constants that meet behind a branch, where the one may be taken for the other."""
        type = self.one([*FLOATS, *TYPES])
        pair = self.one(ALIKE) if type in FLOATS else (self.literal(type), self.literal(type))
        first, other = (f"{NAMES[type][0]} = {type}({number})" for number in pair)
        cond = self.value("bool", 1)
        if self.chance():
            return [f"if {cond}:", f"    {first}", "else:", f"    {other}"]
        return [first, f"if {cond}:", f"    {other}"]

    def weak(self) -> list[str]:
        """Variables that only literals went into, which take the type of what they meet."""
        self.fresh += 1
        one, other, index = f"w{self.fresh}", f"v{self.fresh}", f"c{self.fresh}"
        type = self.one([type for type in TYPES if type[0] != "u"])
        literals = ("0", "1", "2", "3") if type in INTS else ("0", "1", "-0.0", "0.5", "-1", "2.0", "-2")
        first, second, third, last = (self.one(literals) for _ in range(4))
        changes = [f"{one} = {third}", f"{one} += {third}", f"{one}, {other} = {other}, {one}"]
        changes += [
            f"{other} = {one} * 2 + {third}",
            f"{other} = {one} if {self.value('bool', 1)} else {third}",
        ]
        inside = indented([self.one(changes), self.one(changes)])
        heads = [f"if {self.value('bool', 2)}:", f"for {index} in range({self.one(['2', '0', 'k % 3'])}):"]
        name, sign = self.one(NAMES[type]), self.one("+-*")
        uses = [f"{name} = {name} {sign} {one}", f"{name} = {other} {sign} {name}", f"{name} = {type}({one})"]
        uses += [f"{name} = {type}({other})", f"{name} = {type}({name} if {one} < {last} else {other})"]
        return [
            f"{one} = {first}",
            f"{other} = {second}",
            self.one(heads),
            *inside,
            self.one(uses),
            self.one(uses),
        ]

    def branch(self, depth: int, in_loop: bool) -> list[str]:
        lines = [f"if {self.value('bool', 3)}:", *indented(self.block(depth - 1, 2, in_loop))]
        if self.chance():
            lines += [f"elif {self.value('bool', 2)}:", *indented(self.block(depth - 1, 2, in_loop))]
        return lines + (["else:", *indented(self.block(depth - 1, 2, in_loop))] if self.chance() else [])

    def loop(self, depth: int) -> list[str]:
        self.fresh += 1
        name = f"c{self.fresh}"
        match self.number(0, 4):
            case 0:
                type = self.one(TYPES)
                draws = [self.literal if self.chance() else self.leaf for _ in range(self.number(1, 3))]
                items = ", ".join(draw(type) for draw in draws)
                head, use = f"for {name} in ({items},):", f"{type}({NAMES[type][1]} * {name})"
                use = f"{NAMES[type][0]} = {use}"
            case 1:
                head = f"for {name} in range({self.one(['2', '2, -1, -1', '3, 0, -2'])}):"
                use = f"f = f * static([1.0, -1.0, 0.5, 2.0][{name}])"
            case 2:  # the index is a variable that there was before
                head = f"for k in range({self.one(['3', '3, 0, -1', 'k2 % 4'])}):"
                use = "l = l * 3 + int64(k)"
            case _:
                head = f"for {name} in range({self.one(RANGES)}):"
                use = f"k = int32({self.one(['k', 'k2'])} + {name})"
        inside = self.block(depth - 1, 2, in_loop=True)
        return [head, *indented([use, *inside] if self.chance() else [*inside, use])]


SIGNATURE = "def program(x: array[float64], n: array[int64], hits: array[int], e: array[float64], {}):"


def number_program(drawing: Numbers) -> str:
    """The text of a cell whose kernel is `program(x, n, hits, e, and an array for each variable)`."""
    names = [(type, name) for type, both in NAMES.items() for name in both]
    signature = SIGNATURE.format(", ".join(f"out_{name}: array[{stored(type)}]" for type, name in names))
    start = [f"{name} = {_first(type, place)}" for place, (type, name) in enumerate(names)]
    body = drawing.block(2, 8)
    ends = [f"out_{name}[i] = {stored(type)}({name})" for type, name in names]
    lines = ["i = tid()", *start, "z = Pair()", "y = Pair(f, k)", *body, *ends]
    return "\n".join([HELPERS, signature, *indented(lines)]) + "\n"


def stored(type: str) -> str:
    """The type of the array that a variable is written to."""
    return "float64" if type in FLOATS else "int64"


def _first(type: str, place: int) -> str:
    if type == "bool":
        return f"n[(i + {place}) % 8] % 2 == 0"
    return f"{type}({'x' if type in FLOATS else 'n'}[(i + {place}) % 8])"


def outputs() -> Sequence[tuple[str, str]]:
    """The parameter for each variable, and its type."""
    return [(f"out_{name}", stored(type)) for type, both in NAMES.items() for name in both]


@st.composite
def number_programs(draw: st.DrawFn) -> str:
    """The text of a cell whose kernel is `program`."""
    return number_program(Numbers(draw))
