"""The emitter of C++: one walk over a scalarised function prints it for every target.

Knows the IR and, through a `Flavor`, nothing but text; must not know compilers, files or devices.  The text
includes no header, uses no struct, holds only the helpers it calls, and reads like the kernel it comes from:

    float s = 0.0f;
    for (int k = 0; k < n; ++k) {
      ...
      s = s + t;
    }

Every line knows its span.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import assert_never

from kernelab.codegen.cpp import snippets, spelling
from kernelab.codegen.cpp.entry import (
    ASSERTION,
    DIVISION,
    EntryInfo,
    Line,
    Message,
    Param,
    Site,
    Unit,
    layout_of,
    message_of,
)
from kernelab.codegen.cpp.helpers import PRELUDE, Names, called, identifier
from kernelab.codegen.cpp.prefetch import Prefetches, prefetches
from kernelab.codegen.cpp.targets import Flavor, Outline, polled
from kernelab.codegen.cpp.wide_accumulators import Wide, total_of, totals, wide_of
from kernelab.codegen.cpp.writer import (
    Writer,
    axes_of,
    chosen,
    early_saves,
    ends_in_choice,
    is_short,
    scalar_type,
    sides,
    stop_values,
    stops,
    weight,
)
from kernelab.errors import NOWHERE
from kernelab.lang import ir
from kernelab.lang.native import Snippet, SnippetParam, takes_pointer
from kernelab.lang.types import Array, Scalar, Value, scalar_of, size_of


def emit(functions: Sequence[ir.Function], flavor: Flavor) -> Unit:
    """A unit with an entry for each function; they are scalarised, without calls, of distinct names."""
    names = [function.name for function in functions]
    assert len(set(names)) == len(names), f"two functions of one name in {names}"
    symbols = Names()
    bodies = [
        Body(function, symbols.fresh(f"{identifier(function.name)}_entry"), flavor, symbols)
        for function in functions
    ]
    texts = [body.lines() for body in bodies]
    lines = _snippets(flavor, {snippet: name for body in bodies for snippet, name in body.natives.items()})
    ours = (line.text for line in [*lines, *chain(*texts)] if not line.is_native)
    lines = [*map(Line, prelude(flavor, ours)), *lines]
    entries = []
    for body, text in zip(bodies, texts, strict=True):
        first = len(lines)
        lines += text
        entries.append(body.info(range(first, len(lines))))
    return Unit(tuple(lines), tuple(entries))


def prelude(flavor: Flavor, lines: Iterable[str]) -> list[str]:
    """The lines that a unit begins with: the helpers that its other lines call."""
    return "".join([PRELUDE, *called(flavor.helpers, lines)]).splitlines()


def _snippets(flavor: Flavor, natives: dict[Snippet, str]) -> list[Line]:
    """The functions that snippets become, and what they may name."""
    if not natives:
        return []
    lines = [Line(text) for text in snippets.library(flavor.target).splitlines()]
    return lines + [
        line for snippet, name in natives.items() for line in snippets.define(snippet, name, flavor.target)
    ]


class Body(Writer):
    """Prints one function: names, and the sites of its checks."""

    def __init__(self, function: ir.Function, symbol: str, flavor: Flavor, symbols: Names) -> None:
        assert not function.body.yields, f"{function.name} is not a kernel"
        super().__init__(function, flavor)
        self.symbol = symbol
        self.layout = layout_of(function)
        self.symbols = symbols
        self.natives: dict[Snippet, str] = {}
        self.early = early_saves(function.body)
        self.messages: list[Message] = []

    def info(self, lines: range) -> EntryInfo:
        function, layout = self.function, self.layout
        sites, messages = tuple(self.sites), tuple(self.messages)
        coordinates, last_first = len(function.threads), function.descending
        wraps, facts = tuple(self.wraps), (coordinates, lines, messages, last_first)
        return EntryInfo(function.name, self.symbol, layout, sites, *facts, wraps)

    # -------------------------------------------------------------------------------------- lines

    def lines(self) -> list[Line]:
        """The whole entry."""
        shell = self.flavor.shell(self.outline(), self.own_memory.size)
        self.depth = shell.depth
        self.keep_late_values()
        self.stmts(self.function.body.stmts)
        return [*map(Line, shell.head), *self.written, *map(Line, shell.tail)]

    def keep_late_values(self) -> None:
        for type, values in self.own_memory.late.items():
            name = self.name.fresh("late")
            self.line(self.own_memory.late_array(type, name))
            self.late.update(values)
            for place, var in enumerate(values):
                self.name.alias(var, f"{name}[{place}]")

    def outline(self) -> Outline:
        function = self.function
        unpack = tuple(self.unpack())
        if function.linear is not None:
            self.name.alias(function.linear, "thread")
        coordinates = tuple(self.name(var) for var in function.threads)
        many = self.flavor.wide(function)
        beside = {
            array: wide_of(function, array, self.name) for array in dict.fromkeys(stmt.array for stmt in many)
        }
        self.wide = {stmt: beside[stmt.array] for stmt in many}
        numbers = self.flavor.shared_totals(function)
        self.totals = {
            stmt: total_of(stmt, self.name, self.wide.get(stmt), stmt in self.own, numbers.get(stmt))
            for stmt in totals(function)
        }
        params = zip(function.params, self.layout.params, strict=True)
        residuals = tuple((self.name(var), param) for var, param in params if param.residual)
        return Outline(
            self.symbol,
            unpack,
            coordinates,
            weight(function.body),
            self.layout.slots,
            self.layout.arena,
            residuals,
            descending=function.descending,
            totals=(*self.totals.values(), *beside.values()),
            near=self.near,
            unit=self.widest,
            wraps=bool(self.wraps),
            prefetches=self.prefetches(beside),
        )

    def prefetches(self, wide: Mapping[ir.Var, Wide]) -> Prefetches:
        """The elements that are asked for ahead: where threads run one after another, by one index."""
        if self.flavor.target != "cpu":
            return Prefetches()
        return prefetches(self.function, self.name, wide, "thread", "total")

    def unpack(self) -> Iterator[str]:
        """The lines that read the arguments into locals."""
        for var, param in zip(self.function.params, self.layout.params, strict=True):
            name, slot = self.name.family(var, _suffixes(param)), param.slot
            if param.residual:
                continue
            if isinstance(var.type, Array):
                yield f"char* const {name} = (char*)args[{slot}];"
                given, ndim = [f"args[{slot + 1 + k}]" for k in range(2 * var.type.ndim)], var.type.ndim
                yield from self.dimensions(name, given[:ndim], given[ndim:])
            else:
                scalar = scalar_of(var.type)
                value = spelling.load(scalar, f"(args + {slot})")
                yield f"const {spelling.value_type(scalar)} {name} = {value};"

    # -------------------------------------------------------------------------------------- statements

    def stmts(self, stmts: Sequence[ir.Stmt]) -> None:
        for stmt in stmts:
            self.span = None if stmt.span is NOWHERE else stmt.span
            self.stmt(stmt)

    def stmt(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(out):
                self.declare(out, self.operation(stmt))
            case ir.Alloc():
                self.allocate(stmt)
            case ir.Load(out):
                self.load(stmt)
            case ir.Store():
                self.overwrite(stmt)
            case ir.Atomic():
                self.atomic(stmt)
            case ir.If():
                self.choice(stmt)
            case ir.For() | ir.While():
                self.loop(stmt)
            case ir.Assert(cond, "negative", array):
                self.line(f"if (!{self.atom(cond)}) {self.noted(Site(stmt.span, array))}")
            case ir.Assert(cond, kind, message):
                code = ASSERTION if kind == "assertion" else DIVISION
                self.check(f"!{self.atom(cond)}", f"{code}", Site(stmt.span, message=message))
            case ir.Print():
                self.print(stmt)
            case ir.Native():
                self.native(stmt)
            case ir.Save(_, atoms):
                self.save(atoms, stmt in self.early)
            case ir.Restore(_, outs):
                self.restore(outs)
            case ir.Append(array, value):
                self.append(array, value)
            case ir.Call(_, called) | ir.Custom(_, _, ir.CustomRules(called)):
                raise AssertionError(f"the call of {called.name} should have been inlined")
            case _:
                assert_never(stmt)

    def print(self, stmt: ir.Print) -> None:
        message, values = message_of(stmt), [self.atom(value) for value in stmt.values]
        self.line(self.flavor.print(message, len(self.messages), values))
        self.messages.append(message)

    # -------------------------------------------------------------------------------------- snippets

    def native(self, stmt: ir.Native) -> None:
        """Call a snippet: arrays go as views, sums start at 0, results come out by components."""
        snippet = stmt.snippet
        self.in_memory.clear()
        if self.flavor.target == "cpu":
            snippets.refuse_device_words(snippet)
        if snippet not in self.natives:
            self.natives[snippet] = self.symbols.fresh(identifier(snippet.name))
        rest, arguments = iter(stmt.args), dict[str, str]()
        for param in snippet.arguments:
            if isinstance(param.type, Array):
                arguments[param.name] = self.view(param, next(rest), stmt)
            else:
                parts = [self.atom(next(rest)) for _ in range(size_of(param.type))]
                value = f"{snippets.spelt(param.type)}({', '.join(parts)})"
                arguments[param.name] = parts[0] if isinstance(param.type, Scalar) else value
        outs: list[tuple[Value, str]] = []
        for total in snippet.sums:
            assert not isinstance(total.type, Array)
            arguments[total.name] = self.name.fresh(f"{total.name}_sum")
            outs.append((total.type, arguments[total.name]))
            type = snippets.spelt(total.type)
            self.line(f"{type} {arguments[total.name]} = {type}();")
        given = [*["status"] * snippets.asks(snippet), *(arguments[param.name] for param in snippet.params)]
        call = f"{self.natives[snippet]}({', '.join(given)})"
        if snippet.result is not None and stmt.outs:
            name = self.name.fresh("result")
            outs.insert(0, (snippet.result, name))
            call = f"const auto {name} = {call}"
        self.line(f"{call};")
        if stmt.arrays or snippets.asks(snippet):
            self.line(f"if (status[0]) {self.flavor.leave}")
        parts = [snippets.component(type, name, k) for type, name in outs for k in range(size_of(type))]
        for out, part in zip(stmt.outs, parts, strict=True):
            self.declare(out, part)

    def view(self, param: SnippetParam, array: ir.Atom, stmt: ir.Native) -> str:
        """The variable through which a snippet sees an array."""
        assert isinstance(array, ir.Var) and isinstance(array.type, Array)
        name, ndim = self.name(array), array.type.ndim
        view = self.name.fresh(f"{name}_view")
        if param.access == "absent":
            self.line(f"{snippets.view_type(param)} {view} = {{}};")
            return view
        extents = ", ".join(f"(int){name}_n{k}" for k in range(ndim))
        strides = ", ".join(f"{name}_s{k}" for k in range(ndim))
        fields = f"{name}, {{{extents}}}, {{{strides}}}, {ndim}, status, {len(self.sites)}, thread"
        inner = f"{{{fields}}}" if param.access == "clear" else fields
        self.line(f"{snippets.view_type(param)} {view} = {{{inner}}};")
        self.sites.append(Site(stmt.span, array.hint))
        if param.access != "clear" and takes_pointer(stmt.snippet.text, param.name):
            message = f"{stmt.snippet.name} takes {array.hint} as a pointer, and its elements lie apart"
            failed = f"fail(status, 2, {len(self.sites)}, thread); {self.flavor.leave}"
            self.line(f"if (!{view}.packed()) {{ {failed} }}")
            self.sites.append(Site(stmt.span, message=message))
        return view

    # -------------------------------------------------------------------------------------- choices

    def choice(self, stmt: ir.If) -> None:
        if self.selects(stmt, self.atom(stmt.cond)):
            return
        cond, first, second = sides(stmt)
        self.arm(stmt, first, f"if ({self.condition(cond, stmt.cond)})")
        if second.stmts:
            self.arm(stmt, second, "else")

    def selects(self, stmt: ir.If, cond: str) -> bool:
        """Declare the outs; whether each is one of two values that are there, and nothing else happens.

        They begin with the values of a branch without statements, if there is one.
        """
        _, first, second = sides(stmt)
        is_all = not first.stmts
        for out, *values in zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True):
            yes, no = (self.value(out, value) for value in values)
            start = None if second.stmts else no if second is stmt.orelse else yes
            self.declare(out, self.selected(out, stmt.cond, cond, yes, no) if is_all else start)
        return is_all

    def selected(self, target: ir.Var, test: ir.Atom, cond: str, yes: str, no: str) -> str:
        """One of two values, by a test."""
        return f"{cond} ? {yes} : {no}"

    def arm(self, stmt: ir.If, block: ir.Block, head: str) -> None:
        with self.braces(head):
            self.stmts(block.stmts)
            self.assign(stmt.outs, block.yields)

    def value(self, target: ir.Var, atom: ir.Atom) -> str:
        """An atom in the form of what it is given to."""
        return self.atom(atom)

    def condition(self, holds: bool, cond: ir.Atom) -> str:
        return self.atom(cond) if holds else f"!{self.atom(cond)}"

    # -------------------------------------------------------------------------------------- loops

    def loop(self, stmt: ir.Loop) -> None:
        kept = self.kept(stmt)
        for out, carry, init in zip(stmt.outs, stmt.carries, stmt.inits, strict=True):
            if carry in kept:
                self.declare(carry, self.atom(init))
                self.name.alias(out, self.name(carry))
        with self.braces(self.loop_head(stmt)):
            if not is_short(stmt):
                self.line(polled(weight(stmt.body), self.flavor.leave))
            self.iteration(stmt, kept, stmt.body, stmt.body.yields)

    def kept(self, stmt: ir.Loop) -> set[ir.Var]:
        """The carries that need a variable: all but a stop that native breaks make superfluous."""
        kept = set(stmt.carries)
        if stmt.stop is None:
            return kept
        if all(isinstance(value, ir.Const) for value in stop_values(stmt.body, stmt.body.yields[stmt.stop])):
            carry, out = stmt.carries[stmt.stop], stmt.outs[stmt.stop]
            if carry not in self.used and out not in self.used:
                kept.remove(carry)
        return kept

    def loop_head(self, stmt: ir.Loop) -> str:
        match stmt:
            case ir.While():
                return "for (;;)"
            case ir.For(_, index, count):
                type, k, n = spelling.value_type(scalar_type(index)), self.name(index), self.atom(count)
                if stmt.reverse:
                    return f"for ({type} {k} = {n}; {k}-- > 0;)"
                return f"for ({type} {k} = 0; {k} < {n}; ++{k})"

    def iteration(self, loop: ir.Loop, kept: set[ir.Var], block: ir.Block, yields: Sequence[ir.Atom]) -> None:
        """The rest of an iteration: `block`, at whose end the carries take `yields` and the loop may end."""
        if loop.stop is not None and ends_in_choice(block, yields[loop.stop]):
            *before, last = block.stmts
            assert isinstance(last, ir.If)
            self.stmts(before)
            self.span = None if last.span is NOWHERE else last.span
            self.fork(loop, kept, last, yields)
            return
        self.stmts(block.stmts)
        targets = [(c, y) for c, y in zip(loop.carries, yields, strict=True) if c in kept]
        self.assign([c for c, _ in targets], [y for _, y in targets])
        if loop.stop is None:
            return
        if stops(yields[loop.stop]):
            self.line("break;")
        elif not isinstance(yields[loop.stop], ir.Const):
            self.line(f"if ({self.name(loop.carries[loop.stop])}) break;")

    def fork(self, loop: ir.Loop, kept: set[ir.Var], last: ir.If, yields: Sequence[ir.Atom]) -> None:
        """An `If` at the end of an iteration: each branch sets the carries itself and may break."""
        assert loop.stop is not None
        first, second = ((branch, chosen(last, branch, yields)) for branch in (last.then, last.orelse))
        holds = stops(first[1][loop.stop]) or not stops(second[1][loop.stop])
        if not holds:
            first, second = second, first
        with self.braces(f"if ({self.condition(holds, last.cond)})"):
            self.iteration(loop, kept, *first)
        if stops(first[1][loop.stop]):
            self.iteration(loop, kept, *second)
        else:
            with self.braces("else"):
                self.iteration(loop, kept, *second)


def _suffixes(param: Param) -> list[str]:
    """The suffixes of the names of a parameter's locals."""
    if param.residual:
        return ["_handle", "_room", "_length", "_capacity"]
    return axes_of(param.type.ndim) if isinstance(param.type, Array) else []
