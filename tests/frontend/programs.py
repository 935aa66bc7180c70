"""Random programs, full of jumps: text that means the same in Python and in a kernel."""

import random

NAMES = ("a", "b", "c")


class Writer:
    """Writes one kernel of ints; what it draws depends on the seed alone."""

    element = "int"
    indices = ("i", "j", "b")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0

    def kernel(self, start: str = "a, b, c = t, 2, x[0]") -> str:
        self.line(0, f"def kernel(x: array[{self.element}], out: array2d[{self.element}]):")
        self.line(1, "t = tid()")
        self.line(1, start)
        self.block(1, depth=0, in_loop=False)
        self.line(1, "out[t, 0] = a")
        self.line(1, "out[t, 1] = b * 100 + c")
        return "\n".join(self.lines) + "\n"

    def function_and_kernel(self) -> str:
        self.line(0, "def helper(t, x):")
        self.line(1, "a, b, c = t, 2, x[0]")
        self.block(1, depth=0, in_loop=False, value=True)
        self.line(1, "return a, b * 100 + c")
        self.line(0, f"def kernel(x: array[{self.element}], out: array2d[{self.element}]):")
        self.line(1, "t = tid()")
        self.line(1, "out[t, 0], out[t, 1] = helper(t, x)")
        return "\n".join(self.lines) + "\n"

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def number(self) -> str:
        return self.random.choice([*NAMES, "t", "x[abs(a) % len(x)]", str(self.random.randint(-3, 5))])

    def condition(self) -> str:
        simple = f"{self.number()} {self.random.choice(['<', '<=', '==', '!=', '>'])} {self.number()}"
        if self.random.random() < 0.3:
            return f"{simple} {self.random.choice(['and', 'or'])} x[abs(b) % 3] > {self.number()}"
        return simple

    def expression(self) -> str:
        operator = self.random.choice(["+", "-", "*"])
        plain = f"({self.number()} {operator} {self.number()}) % 97"
        return f"{plain} if {self.condition()} else {self.number()}" if self.random.random() < 0.15 else plain

    def bounds(self) -> str:
        return self.random.choice(["3", "a % 4", "1, c % 5", "4, -1, -2", "c % 3, 6, 2", "a % 3, -2, -1"])

    def block(self, indent: int, depth: int, in_loop: bool, value: bool = False) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.statement(indent, depth, in_loop, value)

    def statement(self, indent: int, depth: int, in_loop: bool, value: bool) -> None:
        kind = self.random.random()
        if depth >= 3 or kind < 0.35:
            self.line(indent, f"{self.random.choice(NAMES)} = {self.expression()}")
        elif kind < 0.45:
            self.line(indent, f"x[{self.random.randint(-2, 2)}] = {self.expression()}")
        elif kind < 0.55:
            self.jump(indent, in_loop, value)
        elif kind < 0.75:
            self.line(indent, f"if {self.condition()}:")
            self.block(indent + 1, depth + 1, in_loop, value)
            if self.random.random() < 0.5:
                self.line(indent, "else:")
                self.block(indent + 1, depth + 1, in_loop, value)
        elif kind < 0.9:
            index = self.random.choice(self.indices)
            bounds = self.bounds()
            self.line(indent, f"for {index} in range({bounds}):")
            self.block(indent + 1, depth + 1, True, value)
        else:
            self.loops += 1
            counter = f"n{self.loops}"
            self.line(indent, f"{counter} = 0")
            self.line(indent, f"while {self.condition()}:")
            self.line(indent + 1, f"{counter} += 1")
            self.line(indent + 1, f"if {counter} > 5:")
            self.line(indent + 2, "break")
            self.block(indent + 1, depth + 1, True, value)

    def jump(self, indent: int, in_loop: bool, value: bool) -> None:
        leave = f"return {self.number()}, {self.number()}" if value else "return"
        jump = self.random.choice(["break", "continue", leave] if in_loop else [leave])
        self.line(indent, f"if {self.condition()}:")
        self.line(indent + 1, jump)


class DoubleWriter(Writer):
    """Writes one kernel of doubles, whose variables start as literals of any kind."""

    element = "float64"
    indices = ("i", "j")

    def number(self) -> str:
        literal = self.random.choice([str(self.random.randint(-3, 5)), str(self.random.randint(-3, 5) / 2)])
        return self.random.choice([*NAMES, *NAMES, f"x[{self.random.randint(0, 3)}]", literal, literal])

    def condition(self) -> str:
        return f"{self.number()} {self.random.choice(['<', '<=', '!=', '>'])} {self.number()}"

    def expression(self) -> str:
        root = f"sqrt(abs({self.number()}))"
        operator, divisor = self.random.choice("+-*"), self.random.choice("237")
        quotient = f"({self.number()} {operator} {self.number()}) / {divisor}"
        return self.random.choice([root, quotient, quotient, quotient, "0", "2.5", "a"])

    def bounds(self) -> str:
        return self.random.choice(["3", "4, -1, -2", "0", "t"])
