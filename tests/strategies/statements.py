"""Statements of generated programs: assignments to wholes and parts, arrays, atomics, loops, exits."""

from collections.abc import Callable

from tests.strategies.expressions import Expressions
from tests.strategies.scope import Scope, indented

Lines = list[str]
CHANGES = ("{} = sin({})", "{} += 0.3 * sin({})", "{} *= 0.5 + cos({})", "{} -= 0.2 * tanh({})")
ARRAY_CHANGES = ("{} = sin({})", "{} *= cos({})", "{} += 0.5 * sin({})", "{} /= 1.5 + abs({})")
PARTS = ("p[{k}]", "p.y", "q[{j}, {l}]", "q[0, {j}]", "c[{k}]", "z.f", "z.h.x", "z.h[{j}]")
RANGES = ("3", "m % 4", "n[i]", "1, 4", "3, -1, -1", "0, m % 5, 2", "0", "0, 4, 1 + m % 2", "m % 5, -1, -2")
RANGES += ("-2000000000, 300000000, 1100000000", "1300000000, -1000000000, -1100000000")


class Statements(Expressions):
    """Draws blocks of statements as lines of text."""

    def block(self, scope: Scope, size: int, least: int = 1) -> Lines:
        lines: Lines = []
        for _ in range(self.number(least, size)):
            lines += self.statement(scope)
        return lines

    def statement(self, scope: Scope) -> Lines:
        kinds: list[Callable[[Scope], Lines]] = [self.assignment, self.assignment, self.row, self.row]
        kinds += [self.integer, self.swap]
        kinds += [self.accumulation] if scope.rows[0].startswith("a") else []
        kinds += [self.boolean] if scope.bools else []
        kinds += [self.part, self.part, self.whole] if scope.rich else []
        kinds += [self.common, self.atomic, self.counter, self.vector_element] if scope.shared else []
        kinds += [self.membership, self.changing] if scope.shared else []
        kinds += [self.call] if scope.functions else []
        kinds += [self.branch, self.branch, self.for_, self.for_, self.while_] if scope.depth < 3 else []
        kinds += [self.jump, self.jump] if scope.in_loop else []
        kinds += [self.exit] if scope.depth > 0 else []
        return self.one(kinds)(scope)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------ assignments

    def assignment(self, scope: Scope) -> Lines:
        return [str(self.one(CHANGES)).format(self.one(scope.floats), self.float(scope))]

    def swap(self, scope: Scope) -> Lines:
        first, second = self.one(scope.floats), self.one(scope.floats)
        if first == second:
            return [f"{first} = {self.bounded(scope)}"]
        return [f"{first}, {second} = {second}, {self.bounded(scope)}"]

    def integer(self, scope: Scope) -> Lines:
        name, other = self.one(scope.ints), self.one(scope.whole_numbers)
        if "t" in scope.ints and self.chance():
            return [str(self.one(["t += 1", "t -= 2", "t += m", "t = t + i"]))]
        if self.number(0, 3) == 3:
            scale = self.one(["3.0", "1.0e12"])
            return [f"{name} = int({scale} * {self.bounded(scope, 1)}) % 5"]
        sources = ["{0} = ({0} % 5 + {1}) % 5", "{0} = {1} % 3", "{0} //= 2"]
        sources += ["{0} = {0} if w > 0.1 else {1} % 5"]
        return [str(self.one(sources)).format(name, other)]

    def boolean(self, scope: Scope) -> Lines:
        name = self.one(scope.bools)
        return [str(self.one(["{0} = not {0}", "{0} = {1}"])).format(name, self.condition(scope))]

    def part(self, scope: Scope) -> Lines:
        """Part of a value, or an element of the local array, changes."""
        place = self.placed(self.one(PARTS), scope)
        return [str(self.one(ARRAY_CHANGES)).format(place, self.float(scope))]

    def whole(self, scope: Scope) -> Lines:
        bounded = self.bounded(scope, 1)
        options = [
            [f"p = {self.vector(scope)}"],
            [f"p = {self.vector(scope)} if {self.condition(scope)} else p"],
            [f"q = (q @ q) * 0.1 + mat22d({bounded}, 0.5, {self.bounded(scope, 1)}, u)"],
            ["y = z", f"y.h.x += {bounded}", f"z.f = y.f * 0.5 + sin(y.h.x) * {bounded}"],
            [f"z = Pair({bounded}, vec2d(z.f, {self.bounded(scope, 1)}))"],
            ["r = p", f"r[{self.small(scope, 3)}] = {bounded}", "p = cross(p, r) * 0.5 + r * 0.25"],
            self.another_local_array(scope, bounded),
        ]
        return self.one(options)  # type: ignore[no-any-return]

    def another_local_array(self, scope: Scope, value: str) -> Lines:
        """A local array that is new each time, under a name of its own: a variable stands for one array."""
        name = scope.fresh("e")
        written = [f"{name}[{self.small(scope, 3)}] = {value}", f"{name}[{self.small(scope, 3)}] *= c[0]"]
        return [
            f"{name} = zeros(3, dtype=float64)",
            *written,
            f"c[1] = {name}[{self.small(scope, 3)}] + 0.5 * c[1]",
        ]

    def call(self, scope: Scope) -> Lines:
        name, other = self.one(scope.floats), self.one(scope.floats)
        if self.chance() and name != other:
            return [f"{name}, {other} = both({self.one(scope.floats)}, {self.bounded(scope, 1)})"]
        count = self.one(scope.whole_numbers)
        part = self.one(["x", "x[1:]", "x[::-1]"])
        return [f"{name} = sin(helper({self.float(scope, 1)}, {other}, {count} % 4, {part}, row))"]

    # ------------------------------------------------------------------------------------ arrays

    def row(self, scope: Scope) -> Lines:
        place = str(self.one(scope.rows)).format(self.index(scope))
        return [str(self.one(ARRAY_CHANGES)).format(place, self.float(scope))]

    def common(self, scope: Scope) -> Lines:
        return [str(self.one(ARRAY_CHANGES)).format(f"s[{self.small(scope, 3)}]", self.float(scope))]

    def vector_element(self, scope: Scope) -> Lines:
        if self.chance():
            return [f"d[i] = {self.vector(scope)}"]
        place = self.one(["d[i].z", f"d[i][{self.small(scope, 3)}]"])
        return [str(self.one(ARRAY_CHANGES)).format(place, self.float(scope))]

    def accumulation(self, scope: Scope) -> Lines:
        index, value = self.index(scope), self.bounded(scope)
        kinds = [f"atomic_add(out, i, {index}, {value})", f"out[i, {index}] += {value}"]
        kinds += (
            [f"atomic_sub(out, i, {index}, {value})", f"out[i, {index}] -= {value}"] if scope.shared else []
        )
        return [self.one(kinds)]

    def atomic(self, scope: Scope) -> Lines:
        """An atomic whose old value is used, or an extremum."""
        name, place, value = self.one(scope.floats), self.small(scope, 3), self.bounded(scope)
        extremum = self.one(["min", "max"])
        kinds = [
            f"{name} = 0.5 * atomic_add(s, {place}, {value})",
            f"{name} = sin(atomic_{extremum}(s, {place}, {value}))",
            f"atomic_{extremum}(s, {place}, {value})",
        ]
        return [self.one(kinds)]

    def counter(self, scope: Scope) -> Lines:
        """An atomic of integers, whose old value leads somewhere."""
        name, place, value = self.one(scope.ints), self.small(scope, 3), self.one(scope.whole_numbers)
        kinds = [f"atomic_exch(hits, {place}, {value}) % 5", f"atomic_add(hits, {place}, 1) % 4"]
        return [f"{name} = {self.one(kinds)}", f"{self.one(scope.floats)} *= x[{name} % 4]"]

    def membership(self, scope: Scope) -> Lines:
        """Items that are computed by an effect."""
        counted = f"atomic_add(hits, {self.small(scope, 3)}, 1) % 4"
        found = f"{self.one(scope.whole_numbers)} % 4 in ({counted}, {self.one(scope.whole_numbers)} % 3)"
        return [f"{self.one(scope.ints)} = 1 if {found} else 2", f"{self.one(scope.floats)} *= 0.75"]

    def changing(self, scope: Scope) -> Lines:
        """The right side changes the element, perhaps, that the statement changes."""
        change = str(self.one(["{} *= 0.5 + {}", "{} /= 1.5 + abs({})"]))
        return [change.format(f"s[{self.small(scope, 3)}]", f"moved(s, {self.small(scope, 3)})")]

    # ------------------------------------------------------------------------------------ control flow

    def branch(self, scope: Scope) -> Lines:
        lines = [f"if {self.condition(scope)}:", *indented(self.block(scope.inner(), 2))]
        if self.number(0, 3) == 3:
            lines += [f"elif {self.condition(scope)}:", *indented(self.block(scope.inner(), 2))]
        if self.chance():
            lines += ["else:", *indented(self.block(scope.inner(), 2))]
        return lines

    def for_(self, scope: Scope) -> Lines:
        name = scope.fresh("k")
        span = self.one(RANGES)
        if "n[i]" in span and not scope.rows[0].startswith("a"):
            span = "m % 3"
        # An index that is assigned in the body starts anew in the next iteration.
        known = {"ints": (*scope.ints, name)} if self.chance() else {"counts": (*scope.counts, name)}
        body = self.block(scope.inner(in_loop=True, **known), 3)
        if "ints" in known and self.chance():
            body += [f"{name} = ({name} + 1) % 4", f"{self.one(scope.floats)} += 0.1 * x[{name}]"]
        loop = [f"for {name} in range({span}):", *indented(body)]
        if not self.chance():
            return loop
        after = f"{self.one(scope.floats)} += 0.1 * x[{name} % 4]"
        return [f"{name} = 0", *loop, after]

    def while_(self, scope: Scope) -> Lines:
        name = scope.fresh("k")
        inner = scope.inner(counts=(*scope.counts, name), in_loop=True)
        condition = self.one(
            [f"{name} < 3", f"{name} < 4 and v < 0.7", f"{name} < m % 5", f"{name} < 2 or v > 9.0"]
        )
        if self.chance():
            return self.counting_while(scope, name)
        return [f"{name} = 0", f"while {condition}:", *indented([f"{name} += 1", *self.block(inner, 3)])]

    def counting_while(self, scope: Scope, name: str) -> Lines:
        """A loop that counts by hand, in the ways in which that is written; no jump may skip the counting."""
        inner = scope.inner(counts=(*scope.counts, name), in_loop=False)
        body, step = self.block(inner, 3), self.one(["1", "1", "2", "1 + m % 2"])
        up, down = f"{name} += {step}", f"{name} -= {step}"
        skip = [f"if {self.condition(inner)}:", *indented([*self.block(inner, 1), up, "continue"])]
        least = self.one(["0", "1", "m % 3"])
        kinds = [
            [f"{name} = {least}", f"while {name} < 4:", *indented([*body, up])],
            [f"{name} = 3", f"while {name} >= {least}:", *indented([*body, down])],
            [f"{name} = {least}", f"while {name} <= 3:", *indented([*skip, *body, up])],
            [f"{name} = 0", "while True:", *indented([*body, up, f"if {name} > {least}:", "    break"])],
        ]
        return self.one(kinds)  # type: ignore[no-any-return]

    def jump(self, scope: Scope) -> Lines:
        return [f"if {self.condition(scope)}:", f"    {self.one(['break', 'continue'])}"]

    def exit(self, scope: Scope) -> Lines:
        last = self.float(scope, 1)
        return [f"if {self.condition(scope)}:", *indented(line.format(last) for line in scope.leave)]
