"""The computation graph of one thread: each operation that ran, its value, and the cotangents that flow back.

The thread runs alone, by the interpreter, on copies, as the program that `passes.ad.textbook` writes: first
the primal, then backwards, where each use of a value adds its share to the cotangent of the value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np

from kernelab.autodiff.inspect.thread_run import MOST, ThreadArguments
from kernelab.backend.cpu.chunk import Chunk, Trip, component_of
from kernelab.backend.cpu.interpreter import run_thread
from kernelab.backend.cpu.lanes import Frame, Numpy
from kernelab.codegen.listing.listing import statements_of
from kernelab.codegen.listing.listing_expressions import Expressions
from kernelab.data_classes import dataclass, field
from kernelab.errors import KernelTypeError, Span
from kernelab.hooks import Printed
from kernelab.lang import ir
from kernelab.lang.build import is_float
from kernelab.lang.types import Array, is_differentiable
from kernelab.passes.ad.textbook import CallPath, Textbook, textbook_adjoint
from kernelab.runtime.kernel.kernel import Kernel

Kind = Literal["input", "operation", "change"]


@dataclass(frozen=True, slots=True)
class Iteration:
    """An iteration of a loop; `calls` counts the calls around the loop."""

    loop: Span
    number: int
    calls: int


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A node of the graph: a value that was read or computed, or an element that was changed.

    `text` says how, `operands` are the numbers of the operations whose values it takes.  `calls` and `loops`
    are those around it, the outermost first.
    """

    kind: Kind
    name: str
    text: str
    value: Any
    span: Span
    operands: tuple[int, ...] = ()
    calls: CallPath = ()
    loops: tuple[Iteration, ...] = ()

    @property
    def sentence(self) -> str:
        """The statement: the text, and what it is assigned to where that is not the same."""
        is_whole = self.kind == "change" or self.text == self.name
        return self.text if is_whole else f"{self.name} = {self.text}"


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A step backwards: `source` adds `share` to the cotangent of `target`, which is then `total`.

    `text` is the statement, as a textbook writes it.
    """

    source: int
    target: int
    share: Any
    total: Any
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class ThreadGraph(Printed):
    """The computation graph of one thread, in the order of execution; `note` says why nothing flows back.

    `left_out` counts the operations after the first ones that are kept.
    """

    kernel: Kernel
    thread: tuple[int, ...]
    operations: tuple[Operation, ...]
    flows: tuple[Flow, ...]
    note: str = ""
    left_out: int = 0

    def to_svg(self) -> str:
        """The picture as the text of an SVG file; calls and loops of many operations are folded."""
        return str(self._repr_mimebundle_()["image/svg+xml"])

    def __repr__(self) -> str:
        counts = f"{len(self.operations)} operations, {len(self.flows)} steps back"
        return f"<computation graph of {self.kernel.name}: {counts}>"


def graph_thread(
    kernel: Kernel,
    thread: int | Sequence[int] = 0,
    dim: int | Sequence[int] | None = None,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    adjoints: Mapping[Any, Any] | None = None,
) -> ThreadGraph:
    """The computation graph of one thread of a launch; arguments and errors are those of `trace_thread`."""
    call = ThreadArguments.of(kernel, thread, dim, inputs, outputs)
    kernel, reverse = call.kernel, call.reverse
    function = kernel.calling
    groups = [[function.params[i] for i in group] for group in call.sharing]
    if isinstance(reverse, KernelTypeError):
        book, parts, note = textbook_adjoint(function, (), groups), call.parts, reverse.diagnostics[0].message
    else:
        bars = call.bars(reverse, adjoints)
        book = textbook_adjoint(function, kernel.program.names(reverse.active), groups)
        parts, note = [*call.parts, *(bars[i].packed for i in reverse.active)], ""
    run = _Run(book)
    run_thread(book.function, b"".join(parts), call.linear, partial(_Followed, run))
    shown = tuple(run.operations[:MOST])
    flows = tuple(flow for flow in run.flows if max(flow.source, flow.target) < MOST)
    return ThreadGraph(kernel, call.position, shown, flows, note, len(run.operations) - len(shown))


# ------------------------------------------------------------------------------------------------------- run


_NAMES = re.compile(r"(?P<name>\b[A-Za-z]\w*?)(?P<bar>(?:_bar)?\b)")

Path = tuple[int, ...]
"""The iterations of the loops around a statement."""


def _depths(block: ir.Block, depth: int = 0) -> dict[ir.Var, int]:
    """How many loops are around the definition of each Var."""
    depths: dict[ir.Var, int] = {}
    for stmt in block.stmts:
        depths |= dict.fromkeys(ir.defs(stmt), depth)
        is_loop = isinstance(stmt, ir.Loop)
        depths |= dict.fromkeys(ir.entering(stmt), depth + 1)
        for inner in ir.blocks(stmt):
            depths |= _depths(inner, depth + is_loop)
    return depths


@dataclass
class _Run:
    """What has run so far: `at` are the operations whose values Vars hold, `named` those by name and path."""

    book: Textbook
    operations: list[Operation] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    at: dict[ir.Atom, int | None] = field(default_factory=dict)
    named: dict[tuple[str, Path], int | None] = field(default_factory=dict)
    effects: dict[tuple[ir.Stmt, Path], int] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    loops: list[Iteration] = field(default_factory=list)
    totals: dict[int, Any] = field(default_factory=dict)
    is_back: bool = False

    def __post_init__(self) -> None:
        book = self.book
        self.depths = _depths(book.named.body)
        self.back = frozenset(book.function.body.stmts[book.reverse :])
        self.texts = statements_of(book.function, book.shares)
        self.results = {
            out: atom
            for stmt in ir.walk(book.named.body)
            if isinstance(stmt, ir.Custom)
            for out, atom in zip(stmt.outs, stmt.body.yields, strict=True)
        }

    @property
    def path(self) -> Path:
        return tuple(iteration.number for iteration in self.loops)

    # Forwards ----------------------------------------------------------------------------------------------

    def add(self, kind: Kind, name: str, text: str, value: Any, span: Span, *operands: int | None) -> int:
        """A new operation; its number."""
        used = tuple(dict.fromkeys(number for number in operands if number is not None))
        calls, loops = self.book.calls.get(name, ()), tuple(self.loops)
        self.operations.append(Operation(kind, name, text, value, span, used, calls, loops))
        return len(self.operations) - 1

    def hold(self, var: ir.Var, number: int | None) -> None:
        """A Var holds the value of an operation from here on."""
        self.at[var] = number
        self.named[var.hint, self.path] = number

    def operand(self, atom: ir.Atom, frame: Frame) -> int | None:
        """The operation that a value comes from; a number among the parameters becomes one when used."""
        is_new = isinstance(atom, ir.Var) and atom not in self.at and atom in self.book.function.params
        if isinstance(atom, ir.Var) and is_new and is_float(atom):
            loops, self.loops = self.loops, []
            self.hold(atom, self.add("input", atom.hint, atom.hint, _scalar(frame.values(atom)), atom.span))
            self.loops = loops
        return self.at.get(atom)

    def operation(self, stmt: ir.Let, frame: Frame) -> None:
        """Note an operation of floats; what integers and truth values come from is not part of the graph."""
        if is_float(stmt.out):
            operands = [self.operand(arg, frame) for arg in stmt.args]
            args = tuple(self.shown(arg, frame) for arg in stmt.args)
            text = Expressions(lambda var: var.hint, {}).operation(stmt.op, args).text
            value = _scalar(frame.values(stmt.out))
            self.hold(stmt.out, self.add("operation", stmt.out.hint, text, value, stmt.span, *operands))

    def shown(self, atom: ir.Atom, frame: Frame) -> ir.Atom:
        """An atom as it is written: a float by the name of its operation, an integer by its value."""
        if not isinstance(atom, ir.Var) or isinstance(atom.type, Array):
            return atom
        number = self.at.get(atom)
        if number is not None:
            return ir.Var(atom.type, self.operations[number].name)
        value = _scalar(frame.values(atom))
        return atom if np.ndim(value) else ir.Const(value.item(), atom.type)

    def load(self, stmt: ir.Load, element: str, address: int, frame: Frame) -> None:
        """Note an element that is read, and what of this thread wrote it."""
        if is_float(stmt.out):
            before = self.memory.get(address)
            kind: Kind = "input" if before is None else "operation"
            value = _scalar(frame.values(stmt.out))
            self.hold(stmt.out, self.add(kind, stmt.out.hint, element, value, stmt.span, before))

    def change(self, stmt: ir.Store | ir.Atomic, element: str, address: int, frame: Frame) -> None:
        """Note an element that is changed."""
        if not is_differentiable(stmt.value.type):
            return
        sign = "=" if isinstance(stmt, ir.Store) else {"add": "+="}.get(stmt.kind, f"{stmt.kind}=")
        before = self.memory.get(address) if isinstance(stmt, ir.Atomic) else None
        stored = self.operand(stmt.value, frame)
        text = Expressions(lambda var: var.hint, {}).show(self.shown(stmt.value, frame))
        value = _scalar(frame.values(stmt.value))
        number = self.add("change", element, f"{element} {sign} {text}", value, stmt.span, stored, before)
        self.memory[address] = number
        self.effects[self.book.origins.get(stmt, stmt), self.path] = number
        if isinstance(stmt, ir.Atomic):
            self.hold(stmt.out, before)

    def hand_over(self, outs: Sequence[ir.Var], atoms: Sequence[ir.Atom], frame: Frame) -> None:
        """Vars take the values of atoms, all at once."""
        self.hold_all(outs, [self.operand(atom, frame) for atom in atoms])

    def hold_all(self, vars: Sequence[ir.Var], numbers: Sequence[int | None]) -> None:
        for var, number in zip(vars, numbers, strict=True):
            self.hold(var, number)

    @contextmanager
    def inside(self, loop: ir.Loop, number: int) -> Iterator[None]:
        """Within it, an iteration of a loop runs."""
        calls = max((len(self.book.calls.get(var.hint, ())) for var in ir.entering(loop)), default=0)
        self.loops.append(Iteration(loop.span, number, calls))
        yield
        self.loops.pop()

    # Backwards ---------------------------------------------------------------------------------------------

    def flow(self, stmt: ir.Stmt, frame: Frame) -> None:
        """Note a share that was added to a cotangent."""
        share = self.book.shares[stmt]
        source, target = self.source(share.source), self.of(share.target)
        if source is None or target is None:
            return
        added = stmt.args[1] if isinstance(stmt, ir.Let) else stmt.value  # type: ignore[union-attr]
        value = _scalar(frame.values(added))
        if isinstance(share.source, ir.Store | ir.Atomic):
            self.totals[source] = value
        self.totals[target] = total = self.totals.get(target, 0) + value
        text = self.texts[stmt] if isinstance(stmt, ir.Let) else self.texts[stmt].replace("[0] ", " ", 1)
        self.flows.append(Flow(source, target, value, total, _NAMES.sub(self.renamed, text)))

    def renamed(self, match: re.Match[str]) -> str:
        """A name in a statement as that of the operation whose value it is: a loop hands values on."""
        for depth in range(len(self.loops), -1, -1):
            number = self.named.get((match["name"], self.path[:depth]))
            if number is not None:
                return self.operations[number].name + match["bar"]
        return match[0]

    def of(self, var: ir.Var) -> int | None:
        """The operation whose value a Var of the named primal held in the iteration that is swept."""
        while var in self.results and isinstance(inner := self.results[var], ir.Var):
            var = inner
        return self.named.get((var.hint, self.path[: self.depths.get(var, 0)]))

    def source(self, stmt: ir.Stmt) -> int | None:
        node = self.effects.get((stmt, self.path))
        outs = ir.defs(stmt)
        return self.of(outs[0]) if node is None and outs else node


def _scalar(values: Numpy) -> Any:
    """The value of the only thread."""
    return values[0].copy() if values.ndim > 1 else values[0]


class _Followed(Chunk):
    """A chunk of one thread that notes in a run what it does."""

    def __init__(self, told: _Run, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told = told

    def stmt(self, stmt: ir.Stmt, frame: Frame) -> None:
        told = self.told
        told.is_back |= stmt in told.back
        if not told.is_back and isinstance(stmt, ir.Loop):
            told.hand_over((*stmt.carries, *stmt.outs), (*stmt.inits, *stmt.inits), frame)
        place = None
        if not told.is_back and isinstance(stmt, ir.ArrayAccess):
            place = self.element(stmt, frame)
        super().stmt(stmt, frame)
        if told.is_back:
            if stmt in told.book.shares:
                told.flow(stmt, frame)
            return
        match stmt:
            case ir.Let():
                told.operation(stmt, frame)
            case ir.Load() if place is not None:
                told.load(stmt, *place, frame)
            case ir.Store() | ir.Atomic() if place is not None:
                told.change(stmt, *place, frame)
            case ir.If(outs, cond, then, orelse):
                told.hand_over(outs, (then if _scalar(frame.values(cond)) else orelse).yields, frame)
            case _:
                pass

    def element(self, stmt: ir.ArrayAccess, frame: Frame) -> tuple[str, int]:
        """An element as it is written, and its address."""
        indices = [int(frame.places(index)[0]) for index in stmt.indices]
        places, _ = self.places(stmt, frame)
        whole = places[: len(places) - len(component_of(stmt))]
        address = int(self.addresses(stmt.array, whole)[0])
        return f"{stmt.array.hint}[{', '.join(map(str, indices))}]", address

    def iteration(self, trip: Trip) -> list[Numpy]:
        """Run an iteration, which hands its values over to the next one and to what follows the loop."""
        told, stmt, number = self.told, trip.loop, int(trip.number[0])
        if told.is_back:
            with told.inside(stmt, number):
                return super().iteration(trip)
        operands = [told.at.get(carry) for carry in stmt.carries]
        with told.inside(stmt, number):
            told.hold_all(stmt.carries, operands)
            results = super().iteration(trip)
            operands = [told.operand(atom, trip.around) for atom in stmt.body.yields]
        told.at.update(zip(stmt.carries, operands, strict=True))
        told.hold_all(stmt.outs, operands)
        return results
