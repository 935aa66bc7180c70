"""Prints a function of the IR as text that reads like Python, such as the adjoint of a kernel.

    # line 4: s = s + x[i] * w[i]
    x_bar[i] += s_bar * w[i]

Every line has the span of the source it comes from.  Knows the IR; must not know who shows the text or how.
The text is for reading: it is not run, and it leaves out checks of integer division.
"""

import keyword
import re
from collections.abc import Callable, Collection, Iterator
from itertools import groupby
from typing import assert_never

from kernelab.codegen.listing.folding import Folded, coalesce, fold, leaves, split, tidy
from kernelab.codegen.listing.latex import latex
from kernelab.codegen.listing.listing_expressions import NOT, Expressions, is_start_at_zero
from kernelab.data_classes import dataclass, field, replace
from kernelab.errors import NOWHERE, Span
from kernelab.hooks import Displayed
from kernelab.lang import ir
from kernelab.lang.build import elem_of, type_of
from kernelab.lang.ops import TRIPS
from kernelab.lang.types import bytes_of, spelled

WIDTH = 64
"""The width at which a signature is broken."""

RESERVED = frozenset({*keyword.kwlist, "push", "pop", "printf", "range", "reversed", "tid", "zeros"})


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, the source it comes from, whether it only says so, or goes on with the line before."""

    text: str
    span: Span = NOWHERE
    is_comment: bool = False
    goes_on: bool = False

    @property
    def source_line(self) -> int | None:
        """The number of the source line, None where no user wrote one."""
        return self.span.line if self.span.source is not NOWHERE.source else None


@dataclass(frozen=True, slots=True)
class Saving:
    """Values that a program keeps for the sweep: which, how many bytes each time, in which loop, and when."""

    names: tuple[str, ...]
    bytes: int
    span: Span
    loop: Span | None
    when: str = ""

    @property
    def size(self) -> str:
        """The amount, as text."""
        return f"{self.bytes} bytes {self.when or ('an iteration' if self.loop else 'a thread')}"


WHEN = {"checkpoint": "a checkpoint", "segment": "an iteration of a segment"}
"""When something is pushed on a stack with such a hint."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A function as readable text."""

    name: str
    lines: tuple[Line, ...]
    savings: tuple[Saving, ...] = ()

    def __str__(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def markdown(self) -> str:
        """The text as a block of Markdown."""
        return f"```python\n{self}\n```"

    @property
    def latex(self) -> str:
        """The statements as LaTeX that needs amsmath: an ``aligned`` environment for mathematics."""
        return latex([line.text for line in self.lines if not line.is_comment])


@dataclass(frozen=True, slots=True)
class Derivation(Displayed):
    """The derivatives of a kernel as textbooks write them, and the simplified adjoint that runs.

    Each value has a name, and each use of it adds one share to its cotangent; ``str`` is the text of the
    adjoint.  There is no `tangent` where a custom derivative has none.  Each of the listings has the
    properties `markdown` and `latex`.
    """

    adjoint: Listing
    tangent: Listing | None
    running: Listing

    def __str__(self) -> str:
        return str(self.adjoint)

    @property
    def latex(self) -> str:
        """The adjoint as LaTeX that needs amsmath."""
        return self.adjoint.latex

    @property
    def markdown(self) -> str:
        """All as Markdown: the adjoint as text and as formulas, the tangent, and the adjoint that runs."""
        titles = {"Adjoint": self.adjoint, "Tangent": self.tangent, "The adjoint that runs": self.running}
        parts = [f"### {title}\n\n{shown.markdown}" for title, shown in titles.items() if shown is not None]
        return "\n\n".join([parts[0], f"$$\n{self.latex}\n$$", *parts[1:]])


def listing(function: ir.Function, reverse: int | None = None) -> Listing:
    """The function as Python-like text with, for each line, the source it comes from.

    `reverse` is the position of the statement with which a program begins to go backwards, if it does.
    """
    function = tidy(function)
    printer = _printer(function, reverse is not None)
    lines = [*_signature(function, printer.name), *_with_source(printer.function(function, reverse))]
    return Listing(function.name, tuple(lines), tuple(printer.savings))


def statements_of(function: ir.Function, wanted: Collection[ir.Stmt]) -> dict[ir.Stmt, str]:
    """The lines of some statements of a textbook adjoint, which it has as long as they are needed."""
    printer = _printer(function, True)
    return {stmt: printer.simple(stmt) for stmt in ir.walk(function.body) if stmt in wanted}


def _printer(function: ir.Function, only_adds: bool) -> "_Printer":
    folded = fold(function)
    name = coalesce(function, folded, RESERVED)
    moved = split(function, name)
    if moved:
        folded = fold(function, moved)
        name = coalesce(function, folded, RESERVED)
    return _Printer(name, folded, Expressions(name, folded), frozenset(ir.reads(function.body)), only_adds)


BACKWARDS = "# backwards: each use adds its share"
"""The comment between the two halves of an adjoint as textbooks write it."""

CHAIN = 6
"""How many cotangents begin at zero on one line."""


@dataclass(frozen=True, slots=True)
class _Row:
    depth: int
    text: str
    span: Span
    is_move: bool = False


Rows = list[_Row]


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a block: assignments, results, and the stop of the loop around it."""

    span: Span
    copies: tuple[tuple[ir.Var, ir.Atom], ...] = ()
    results: tuple[ir.Atom, ...] = ()
    stop: ir.Atom | None = None

    def inside(self, branch: ir.Block, outs: tuple[ir.Var, ...], span: Span) -> "_End":
        """The same at the end of a branch whose If comes last in the block."""
        value: dict[ir.Atom | None, ir.Atom] = dict(zip(outs, branch.yields, strict=True))
        copies = tuple((var, value.get(atom, atom)) for var, atom in self.copies)
        return _End(span, copies, self.results, value.get(self.stop, self.stop))


@dataclass(slots=True)
class _Printer:
    name: Callable[[ir.Var], str]
    folded: Folded
    expr: Expressions
    used: frozenset[ir.Atom]
    only_adds: bool = False
    savings: list[Saving] = field(default_factory=list)
    loops: list[Span] = field(default_factory=list)

    def function(self, function: ir.Function, reverse: int | None = None) -> Rows:
        head = []
        if function.threads:
            head.append(_Row(1, f"{self.names(function.threads)} = tid()", function.threads[0].span))
        if function.linear is not None and function.linear in self.used:
            head.append(_Row(1, f"{self.name(function.linear)} = number_of_thread()", NOWHERE))
        block, end = function.body, _End(function.span, results=function.body.yields)
        if reverse is None:
            return [*head, *(self.block(block, 1, end) or [_Row(1, "pass", NOWHERE)])]
        primal = self.block(ir.Block(block.stmts[:reverse]), 1, _End(function.span))
        sweep = self.block(ir.Block(block.stmts[reverse:]), 1, end)
        return [*head, *primal, _Row(1, BACKWARDS, NOWHERE), *sweep]

    def names(self, vars: tuple[ir.Var, ...]) -> str:
        return ", ".join(self.name(var) for var in vars)

    def block(self, block: ir.Block, depth: int, end: _End) -> Rows:
        last = block.stmts[-1] if block.stmts else None
        if isinstance(last, ir.If) and end.stop in last.outs and not self.is_hidden(last):
            ends = [end.inside(branch, last.outs, last.span) for branch in (last.then, last.orelse)]
            return [*self.stmts(block.stmts[:-1], depth), *self.branches(last, depth, *ends)]
        return [*self.stmts(block.stmts, depth), *self.end(end, depth)]

    def stmts(self, stmts: tuple[ir.Stmt, ...], depth: int) -> Rows:
        shown = (stmt for stmt in stmts if not self.is_hidden(stmt))
        rows: Rows = []
        for is_start, group in groupby(shown, is_start_at_zero):
            more = [row for stmt in group for row in self.stmt(stmt, depth)]
            rows += _together(more) if is_start else more
        return rows

    def is_hidden(self, stmt: ir.Stmt) -> bool:
        if isinstance(stmt, ir.Assert):
            return stmt.kind != "assertion"
        return not self.folded.keys().isdisjoint(ir.defs(stmt))

    def stmt(self, stmt: ir.Stmt, depth: int) -> Rows:
        match stmt:
            case ir.If(outs, _, then, orelse):
                ends = [_End(stmt.span, tuple(zip(outs, b.yields, strict=True))) for b in (then, orelse)]
                return self.branches(stmt, depth, *ends)
            case ir.For():
                count = f"range({self.trips(stmt.count)})"
                over = f"reversed({count})" if stmt.reverse else count
                return self.loop(stmt, depth, f"for {self.name(stmt.index)} in {over}:")
            case ir.While():
                return self.loop(stmt, depth, "while True:")
            case _:
                return [_Row(depth, self.simple(stmt), _place(stmt))]

    def trips(self, count: ir.Atom) -> str:
        """The trip count of a loop as text; a difference below 0 means no iteration."""
        match self.folded.get(count) if isinstance(count, ir.Var) else None:
            case ir.Let(_, op, (start, stop, ir.Const(1))) if op is TRIPS:
                return self.expr.infix("-", stop, start).text
            case ir.Let(_, op, (start, stop, ir.Const(-1))) if op is TRIPS:
                return self.expr.infix("-", start, stop).text
            case _:
                return self.expr.show(count)

    def simple(self, stmt: ir.Stmt) -> str:
        match stmt:
            case ir.Let():
                return self.let(stmt)
            case ir.Alloc(out, shape):
                sizes = str(shape[0]) if len(shape) == 1 else str(shape)
                return f"{self.name(out)} = zeros({sizes}, {spelled(elem_of(out))})"
            case ir.Load():
                return self.assignment(self.name(stmt.out), stmt)
            case ir.Store(array, indices, value):
                return self.assignment(self.expr.element(array, indices, stmt.component).text, value)
            case ir.Atomic():
                return self.atomic(stmt)
            case ir.Assert(cond, _, message):
                return f"assert {self.expr.show(cond)}" + (f", {message!r}" if message else "")
            case ir.Print():
                return self.print(stmt)
            case ir.Native(outs, function, args) | ir.Call(outs, function, args):
                call = f"{function.name}({self.expr.list(args)})"
                return f"{self.names(outs)} = {call}" if outs else call
            case ir.Save(stack, values):
                when = WHEN.get(stack.hint, "")
                return f"push({self.expr.list(values)}){self.note(values, stmt.span, when)}"
            case ir.Restore(_, outs):
                return f"{self.names(outs)} = pop()"
            case ir.Append(array, value):
                return f"{self.name(array)}.append({self.expr.show(value)}){self.note((value,), stmt.span)}"
            case ir.If() | ir.For() | ir.While() | ir.Custom():
                raise AssertionError("a compound statement has lines of its own")
            case _:
                assert_never(stmt)

    def print(self, stmt: ir.Print) -> str:
        texts = [text.replace("%", "%%") for text in stmt.texts]
        specs = [spec or "%s" for spec in stmt.specs]
        form = "".join(text + spec for text, spec in zip(texts, [*specs, ""], strict=True))
        return f"printf({', '.join([repr(form), *map(self.expr.show, stmt.values)])})"

    def let(self, stmt: ir.Let) -> str:
        name = self.name(stmt.out)
        match stmt.op.name, stmt.args:
            case "insert", (vector, *indices, value) if self.expr.show(vector) == name:
                return self.assignment(f"{name}[{self.expr.list(tuple(indices))}]", value)
            case _:
                return self.assignment(name, stmt)

    def assignment(self, target: str, value: ir.Atom | ir.Let | ir.Load) -> str:
        """``s = x``, or ``s += x`` where the value is what the target held and something more."""
        stmt = self.folded.get(value) if isinstance(value, ir.Var) else value
        match stmt:
            case ir.Let(_, op, (a, b)) if op.symbol in ("+", "-", "*", "/") and self.expr.show(a) == target:
                if op.name == "add":
                    return self.increase(target, b)
                return f"{target} {op.symbol}= {self.expr.show(b)}"
            case ir.Let() | ir.Load() | ir.If():
                return f"{target} = {self.expr.value(stmt).text}"
            case _:
                assert isinstance(value, ir.Var | ir.Const)
                return f"{target} = {self.expr.show(value)}"

    def atomic(self, stmt: ir.Atomic) -> str:
        if stmt.out in self.used or stmt.kind != "add":
            compare = () if stmt.compare is None else (stmt.compare,)
            operands = self.expr.list((stmt.array, *stmt.indices, *compare, stmt.value))
            target = f"{self.name(stmt.out)} = " if stmt.out in self.used else ""
            return f"{target}atomic_{stmt.kind}({operands})"
        return self.increase(self.expr.element(stmt.array, stmt.indices, stmt.component).text, stmt.value)

    def increase(self, target: str, by: ir.Atom) -> str:
        negated = None if self.only_adds else self.expr.negated(by)
        sign, value = ("+", self.expr.text(by)) if negated is None else ("-", negated)
        return f"{target} {sign}= {value.text}"

    def note(self, values: tuple[ir.Atom, ...], span: Span, when: str = "") -> str:
        """Remember what is saved; the comment that says how much."""
        names, loop = tuple(map(self.expr.show, values)), self.loops[-1] if self.loops else None
        saving = Saving(names, sum(bytes_of(type_of(value)) for value in values), span, loop, when)
        self.savings.append(saving)
        return f"  # {saving.size}"

    def end(self, end: _End, depth: int) -> Rows:
        rows = self.assign(end.copies, depth, end.span)
        if end.results:
            rows.append(_Row(depth, f"return {self.expr.list(end.results)}", end.span))
        match end.stop:
            case ir.Const(True):
                rows.append(_Row(depth, "break", end.span))
            case ir.Var():
                span = self.span(end.stop, end.span)
                carried = [self.name(var) for var, atom in end.copies if atom is end.stop]
                test = carried[0] if carried else self.expr.show(end.stop)
                if not carried and self.is_overwritten(end):
                    # What the test reads is assigned anew before it: it is taken first.
                    rows.insert(0, _Row(depth, f"{self.name(end.stop)} = {test}", span))
                    test = self.name(end.stop)
                rows += [_Row(depth, f"if {test}:", span), _Row(depth + 1, "break", span)]
        return rows

    def is_overwritten(self, end: _End) -> bool:
        """Whether the copies at the end of an iteration assign a name that the test for its end reads."""
        assert end.stop is not None
        read = {self.name(leaf) for leaf in leaves(end.stop, self.folded)}
        changed = {self.name(var) for var, atom in end.copies if self.name(var) != self.expr.show(atom)}
        return not read.isdisjoint(changed)

    def assign(self, copies: tuple[tuple[ir.Var, ir.Atom], ...], depth: int, span: Span) -> Rows:
        """Assignments that happen together, without those of a value to its own name."""
        pairs = [(self.name(var), atom, self.expr.show(atom)) for var, atom in copies]
        pairs = [pair for pair in pairs if pair[0] != pair[2]]
        later = ((pair[0], other[2]) for i, pair in enumerate(pairs) for other in pairs[i + 1 :])
        if any(re.search(rf"\b{re.escape(name)}\b", text) for name, text in later):
            names, _, values = zip(*pairs, strict=True)
            return [_Row(depth, f"{', '.join(names)} = {', '.join(values)}", span)]
        return [
            _Row(depth, self.assignment(name, atom), self.span(atom, span), atom not in self.folded)
            for name, atom, _ in pairs
        ]

    def span(self, atom: ir.Atom, otherwise: Span) -> Span:
        """The span of an expression; a value that has a name is only moved."""
        return atom.span if isinstance(atom, ir.Var) and atom in self.folded else otherwise

    def branches(self, stmt: ir.If, depth: int, then: _End, orelse: _End) -> Rows:
        yes = self.block(stmt.then, depth + 1, then)
        no = self.block(stmt.orelse, depth + 1, orelse)
        cond = self.expr.text(stmt.cond)
        if not yes:
            return [_Row(depth, f"if not {cond.within(NOT)}:", stmt.span), *no] if no else []
        rows = [_Row(depth, f"if {cond.text}:", stmt.span), *yes]
        return [*rows, *_otherwise(rows, no, depth, stmt.span)]

    def loop(self, stmt: ir.For | ir.While, depth: int, head: str) -> Rows:
        k = stmt.stop
        reads_stop = k is not None and not self.used.isdisjoint((stmt.carries[k], stmt.outs[k]))
        carried = [k for k in range(len(stmt.carries)) if k != stmt.stop or reads_stop]
        before = tuple((stmt.carries[k], stmt.inits[k]) for k in carried)
        around = tuple((stmt.carries[k], stmt.body.yields[k]) for k in carried)
        after = tuple((stmt.outs[k], stmt.carries[k]) for k in carried)
        stop = None if stmt.stop is None else stmt.body.yields[stmt.stop]
        self.loops.append(stmt.span)
        body = self.block(stmt.body, depth + 1, _End(stmt.span, around, (), stop))
        self.loops.pop()
        rows = [_Row(depth, head, stmt.span), *(body or [_Row(depth + 1, "pass", stmt.span)])]
        rows = [*self.assign(before, depth, stmt.span), *_tidy_while(rows)]
        return [*rows, *self.assign(after, depth, stmt.span)]


def _together(rows: Rows) -> Rows:
    """``a_bar = 0.0`` and ``b_bar = 0.0`` as one line; vectors, which NumPy changes in place, stay apart."""
    texts: list[str] = []
    for value, group in groupby(rows, lambda row: row.text.partition(" = ")[2]):
        names = [row.text.partition(" = ")[0] for row in group]
        most = 1 if "(" in value else CHAIN
        texts += (" = ".join([*names[k : k + most], value]) for k in range(0, len(names), most))
    return [_Row(rows[0].depth, text, NOWHERE) for text in texts]


def _place(stmt: ir.Stmt) -> Span:
    """The span of a statement: if it has none of the user's, that of the parameter it accesses."""
    if stmt.span.source is NOWHERE.source and isinstance(stmt, ir.ArrayAccess):
        return stmt.array.span
    return stmt.span


def _otherwise(yes: Rows, no: Rows, depth: int, span: Span) -> Rows:
    """The rows after a branch: none, flat after a `break`, ``elif``, or ``else``."""
    if not no:
        return []
    if yes[-1].depth == depth + 1 and yes[-1].text == "break":
        return _dedent(no)
    starts = [row.text for row in no if row.depth == depth + 1]
    if starts[0].startswith("if ") and all(text.startswith(("elif ", "else:")) for text in starts[1:]):
        flat = _dedent(no)
        return [_Row(depth, "el" + flat[0].text, flat[0].span), *flat[1:]]
    return [_Row(depth, "else:", span), *no]


def _tidy_while(rows: Rows) -> Rows:
    """``while True: if c: B else: break`` as ``while c: B``; likewise where the break comes first."""
    head, first, *rest = rows
    if head.text != "while True:" or not first.text.startswith("if "):
        return rows
    starts = [k for k, row in enumerate(rest) if row.depth == first.depth]
    if len(starts) == 1 and [row.text for row in rest[starts[0] :]] == ["else:", "break"]:
        return [_Row(head.depth, f"while {first.text[3:]}", first.span), *_dedent(rest[: starts[0]])]
    if first.text.startswith("if not ") and len(rest) > 1 and rest[0].text == "break":
        return [_Row(head.depth, f"while {first.text[7:]}", first.span), *rest[1:]]
    return rows


def _dedent(rows: Rows) -> Rows:
    return [replace(row, depth=row.depth - 1) for row in rows]


def _signature(function: ir.Function, name: Callable[[ir.Var], str]) -> list[Line]:
    start = f"def {function.name}("
    params = [f"{name(param)}: {spelled(param.type)}" for param in function.params]
    if len(start) + len(", ".join(params)) < WIDTH:
        return [Line(f"{start}{', '.join(params)}):", function.span)]
    rows = [" " * 8]
    for param in params:
        if rows[-1].strip() and len(rows[-1]) + len(param) >= WIDTH:
            rows.append(" " * 8)
        rows[-1] += f"{param}, "
    texts = [start, *(row.rstrip() for row in rows[:-1]), f"{rows[-1].removesuffix(', ')}):"]
    return [Line(text, function.span, goes_on=number > 0) for number, text in enumerate(texts)]


def _with_source(rows: Rows) -> Iterator[Line]:
    """The rows as lines, with a comment wherever the line of the source changes and says something else."""
    current = 0
    for row in rows:
        indent = "    " * row.depth
        line = Line(indent + row.text, row.span)
        number = line.source_line
        speaks = not row.is_move and not row.text.startswith(("else:", "elif "))
        if number is not None and number != current and speaks:
            current = number
            text = row.span.source.line(number).strip()
            if text != row.text:
                yield Line(f"{indent}# line {number}: {text}", row.span, is_comment=True)
        yield line
