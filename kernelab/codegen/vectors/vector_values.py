"""Values of vector code: a scalar if a group has one value, else a vector with a lane for each thread.

A `VectorValues` knows the mask under which it writes, "" where all lanes are on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.emitter import Body
from kernelab.codegen.cpp.helpers import Names, identifier
from kernelab.codegen.cpp.targets import Cpu
from kernelab.codegen.cpp.writer import ordered, scalar_type
from kernelab.codegen.vectors.variation import LINEAR, UNIFORM, VARYING, Variation, Variations
from kernelab.codegen.vectors.vector_helpers import NAMES
from kernelab.codegen.vectors.vector_operations import SMALL, VECTORS, Lanes
from kernelab.lang import ir
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Scalar, bool_, float64, int32


class Refused(Exception):
    """A function that stays scalar, and why."""


class LateCheck(Refused):
    """A check that would come after a thread has changed something."""


class VectorValues(Body):
    """Writes the values of one function, for groups of threads."""

    def __init__(self, function: ir.Function, lanes: Lanes) -> None:
        symbols = Names()
        super().__init__(function, symbols.fresh(f"{identifier(function.name)}_vectors"), Cpu(), symbols)
        self.name = Names(NAMES)
        self.lanes = lanes
        self.variations = Variations(function)
        self.of = self.variations.of
        self.mask = ""
        self.asked_by_lanes: tuple[str, ...] = ()

    @contextmanager
    def under(self, mask: str) -> Iterator[None]:
        """What is written within runs in the lanes of a mask only."""
        before, self.mask = self.mask, mask
        yield
        self.mask = before

    # ------------------------------------------------------------------------------------------ values

    def vector_type(self, scalar: Scalar) -> str:
        if scalar not in self.lanes.vectors:
            raise Refused(f"it computes with {scalar} in each thread")
        return VECTORS[scalar]

    def test_for(self, scalar: Scalar, mask: str) -> str:
        """A mask in the form that chooses between vectors of a scalar."""
        return f"mask_64({mask})" if scalar == float64 else mask

    def selected(self, target: ir.Var, test: ir.Atom, cond: str, yes: str, no: str) -> str:
        is_mask = self.of(test) != UNIFORM
        return super().selected(
            target, test, self.test_for(scalar_type(target), cond) if is_mask else cond, yes, no
        )

    def vector(self, atom: ir.Atom) -> str:
        scalar = scalar_type(atom)
        self.vector_type(scalar)
        match self.of(atom):
            case Variation.VARYING:
                return self.atom(atom)
            case Variation.LINEAR:
                return f"({self.atom(atom)} + iota)"
            case Variation.UNIFORM:
                return f"{'truth' if scalar == bool_ else 'splat'}({spelling.unwrapped(self.atom(atom))})"

    def of_lane(self, atom: ir.Atom) -> str:
        """The value of an atom in `lane`."""
        match self.of(atom):
            case Variation.VARYING:
                text, scalar = f"{self.atom(atom)}[lane]", scalar_type(atom)
                if scalar in SMALL:
                    return f"(({spelling.value_type(scalar)}){text})"
                return f"({text} != 0)" if scalar == bool_ else text
            case Variation.LINEAR:
                return f"({self.atom(atom)} + lane)"
            case Variation.UNIFORM:
                return self.atom(atom)

    def declare(self, var: ir.Var, value: str | None = None) -> None:
        if self.of(var) != VARYING:
            super().declare(var, value)
            return
        text = " = {}" if value is None else f" = {spelling.unwrapped(value)}"
        self.line(f"{self.vector_type(scalar_type(var))} {self.name(var)}{text};")

    def value(self, target: ir.Var, atom: ir.Atom) -> str:
        """An atom in the form of what it is given to."""
        return self.vector(atom) if self.of(target) == VARYING else self.atom(atom)

    def temporary(self, scalar: Scalar, hint: str, value: str) -> str:
        name = self.name.fresh(hint)
        self.line(f"{self.vector_type(scalar)} {name} = {spelling.unwrapped(value)};")
        return name

    def assign(self, targets: Sequence[ir.Var], values: Sequence[ir.Atom], mask: str = "") -> None:
        """Give all targets their values at once; with a mask, in its lanes."""
        moves = []
        types = {self.name(t): self.cpp_type(t) for t in targets}
        for target, value in zip(targets, values, strict=True):
            text, name, scalar = self.value(target, value), self.name(target), scalar_type(target)
            if self.of(target) == VARYING and text != name and (mask or self.of(value) != VARYING):
                chosen = f"{self.test_for(scalar, mask)} ? {text} : {name}" if mask else text
                text = self.temporary(scalar, f"{name}_next", chosen)
            moves.append((name, text, scalar))
        for name, text, old in ordered(moves, self.name.numbered):
            declared = "" if old is None else f"{types[text]} "
            self.line(f"{declared}{name} = {spelling.unwrapped(text)};")

    def cpp_type(self, var: ir.Var) -> str:
        scalar = scalar_type(var)
        return self.vector_type(scalar) if self.of(var) == VARYING else spelling.value_type(scalar)

    def let(self, stmt: ir.Let) -> None:
        if self.of(stmt.out) != VARYING or stmt.op is SHAPE:
            self.declare(stmt.out, self.operation(stmt))
            return
        types, scalar = [scalar_type(arg) for arg in stmt.args], scalar_type(stmt.out)
        for type in (*types, scalar):
            self.vector_type(type)
        if stmt.op.name in ("floordiv", "mod") and scalar == int32 and self.is_linear_by_uniform(stmt.args):
            operands = [self.atom(arg) for arg in stmt.args]
        else:
            operands = [self.vector(arg) for arg in stmt.args]
        text = self.lanes.operation(stmt.op, operands, types, scalar)
        if text is not None:
            self.declare(stmt.out, text)
            return
        operands = [self.of_lane(arg) for arg in stmt.args]
        if scalar.is_int and stmt.op.name in ("floordiv", "mod"):
            operands[1] = f"({operands[1]} ? {operands[1]} : 1)"  # lanes that are off may divide by zero
        self.declare(stmt.out)
        value = self.flavor.operation(stmt.op, operands, types, scalar)
        result = f"-(int)({value})" if scalar == bool_ else spelling.unwrapped(value)
        if scalar in SMALL:
            result = f"({spelling.value_type(scalar)})({result})"
        self.line(
            f"for (int lane = 0; lane < {self.lanes.width}; ++lane) {self.name(stmt.out)}[lane] = {result};"
        )

    def is_linear_by_uniform(self, args: Sequence[ir.Atom]) -> bool:
        return [self.of(arg) for arg in args] == [LINEAR, UNIFORM]

    def masked(self, text: str) -> str:
        return f"{text} & {self.mask}" if self.mask else text

    @contextmanager
    def each_lane(self) -> Iterator[None]:
        """A loop over the lanes that are on, in the order of their threads."""
        down, width = self.function.descending, self.lanes.width
        if not self.mask:
            over = (
                f"int lane = {width - 1}; lane >= 0; --lane"
                if down
                else f"int lane = 0; lane < {width}; ++lane"
            )
            with self.braces(f"for ({over})"):
                self.ask_ahead()
                yield
            return
        with self.braces(f"for (unsigned left = bits({self.mask}); left;)"):
            self.line(f"const int lane = {'31 - __builtin_clz' if down else '__builtin_ctz'}(left);")
            self.line("left &= ~(1u << lane);")
            self.ask_ahead()
            yield

    def ask_ahead(self) -> None:
        """Ask for what later lanes add to, in the first loop over the lanes of a group."""
        for text in self.asked_by_lanes:
            self.line(text)
        self.asked_by_lanes = ()
