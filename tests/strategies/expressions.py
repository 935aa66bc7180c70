"""Expressions of generated programs: floats, indices, conditions, vectors."""

from tests.strategies.scope import Drawing, Scope

COLUMNS = 4
"""Elements of a thread's row."""

UNARY = (
    "sin({})",
    "cos({})",
    "tanh({})",
    "exp(-abs({}))",
    "sqrt(1.5 + abs({}))",
    "atan({})",
    "-{}",
    "abs({})",
)
BINARY = ("({} + {})", "({} - {})", "0.7 * {} * {}", "({} / (1.5 + abs({})))", "max({}, {})", "min({}, {})")
RICH = ("p[{k}]", "p.y", "q[{j}, {l}]", "q[1][{j}]", "c[{k}]", "z.f", "z.h.x", "z.h[{j}]")
SPECIAL = ("1.0", "0.0", "-1.0", "2.0", "-0.0")
"""Constants that products, sums and selections may know, each special in another way in each type."""
WITH_SPECIAL = (
    "float64({c})",
    "({c} * v)",
    "(v - {c})",
    "(u / 1.0)",
    "(mat33d({c}) @ p)[{k}]",
    "(mat22d({c}) * q)[{j}, {l}]",
    "(q @ mat22d({c}))[{j}, {l}]",
    "(mat22d({c}) * z.h).y",
    "(p * {c} - vec3d({c}))[{k}]",
    "dot(vec3d({c}), p)",
    "cross(vec3d({c}), p).y",
    "(quatd({c}) * quatd(p.x, {c}, u, v))[{k}]",
    "(quatd(p.y, v, {c}, u) * quatd({c})).w",
)
REDUCED = ("dot(p, p)", "length(vec3d(1.5, p.z, p.x))", "(q @ z.h).y", "dot(p, vec3d(v, 0.5, c[{k}]))")


class Expressions(Drawing):
    """Draws expressions as text."""

    def float(self, scope: Scope, depth: int = 2) -> str:
        """An expression of type float64; a comparison of the same operands twice is not a kink."""
        kind = self.number(0, 5) if depth else 0
        if kind <= 1:
            return self.leaf(scope)
        if kind == 2:
            return self._apply(self.one(UNARY), self.float(scope, depth - 1))
        if kind == 3:
            return self._apply(self.one(BINARY), self.float(scope, depth - 1), self.float(scope, depth - 1))
        first, second = self.float(scope, depth - 1), self.float(scope, depth - 1)
        if kind == 4:
            return f"({first} if {self.condition(scope)} else {second})"
        return f"where({self.condition(scope)}, {first}, {second})"

    def _apply(self, template: str, *operands: str) -> str:
        # An operand that is not a leaf may be a sum, and a sign binds less tightly than a product.
        return template.format(*(f"({operand})" for operand in operands))

    def leaf(self, scope: Scope) -> str:
        options = [*scope.floats, *scope.floats, "float64(0.5)", "float64(-0.75)", "x", "row"]
        options += ["shared", "d"] if scope.shared else []
        options += [*RICH, *REDUCED, *WITH_SPECIAL] if scope.rich else list(WITH_SPECIAL[:4])
        chosen: str = self.one(options)
        match chosen:
            case "x":
                return f"x[{self.index(scope)}]"
            case "row":
                return str(self.one(scope.rows)).format(self.index(scope))
            case "shared":
                return f"s[{self.small(scope, 3)}]"
            case "d":
                return f"d[i][{self.small(scope, 3)}]"
        return self.placed(chosen, scope)

    def placed(self, template: str, scope: Scope) -> str:
        """A template with indices in place of its holes."""
        special = {"c": self.one(SPECIAL)} if "{c}" in template else {}
        holes = special | {
            name: self.small(scope, 2 if name in "jl" else 3) for name in "jkl" if f"{{{name}}}" in template
        }
        return template.format(**holes)

    def small(self, scope: Scope, size: int) -> str:
        """An index below a small size, often found at run time."""
        if self.chance():
            return str(self.number(0, size - 1))
        return f"{self.one(scope.whole_numbers)} % {size}"

    def index(self, scope: Scope) -> str:
        """An index into a row or into `x`, from the end if negative."""
        match self.number(0, 2):
            case 0:
                return str(self.number(0, COLUMNS - 1))
            case 1:
                return f"({self.one(scope.whole_numbers)} + {self.number(0, 3)}) % {COLUMNS}"
            case _:
                return f"-1 - {self.one(scope.whole_numbers)} % {COLUMNS}"

    def condition(self, scope: Scope) -> str:
        kind = self.number(0, 6)
        if kind == 6:
            return f"({self.comparison(scope)}) {self.one(['and', 'or'])} not ({self.comparison(scope)})"
        return self.comparison(scope)

    def comparison(self, scope: Scope) -> str:
        kind = self.number(0, 5)
        if kind == 5 and scope.bools:
            return str(self.one(scope.bools))
        if kind == 4:
            return f"{self.one(scope.whole_numbers)} % 2 == 0"
        operands = [*scope.floats, "x[1]", scope.rows[0].format(2)]
        operands += ["p.x", "c[1]", "z.f"] if scope.rich else []
        limit = self.one(["0.1", "-0.2", "0.6", *scope.floats[1:]])
        if kind == 3:
            return f"-0.4 < {self.one(operands)} <= {limit}"
        return f"{self.one(operands)} {self.one(['<', '>', '<=', '>='])} {limit}"

    def bounded(self, scope: Scope, depth: int = 2) -> str:
        """A float between -1 and 1."""
        return f"sin({self.float(scope, depth)})"

    def vector(self, scope: Scope) -> str:
        """A vec3d whose components are between -1 and 1."""
        parts = ", ".join(self.bounded(scope, 1) for _ in range(3))
        return str(self.one([f"vec3d({parts})", f"(p * 0.5 + vec3d({parts}))", "d[i] * 0.5", "p * v"]))
