"""The emitter of C++: one walk over a scalarised function prints it for every target.

Knows the IR and, through a `Flavor`, nothing but text; must not know compilers, files or devices.  The text
includes no header, uses no struct, holds only the helpers it calls, and reads like the kernel it comes from:

    float s = 0.0f;
    for (int k = 0; k < n; ++k) {
      ...
      s = s + t;
    }

Every line knows its span.  An array element is checked against its bounds once where several accesses share
array and indices, in the outermost block that dominates them.
"""

import math
from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

from kernelab.codegen import snippets, spelling
from kernelab.codegen.entry import (
    ASSERTION,
    DIVISION,
    FULL,
    LIMIT,
    MEMORY,
    EntryInfo,
    Line,
    Param,
    Site,
    Unit,
    layout_of,
)
from kernelab.codegen.flavors import Flavor
from kernelab.codegen.helpers import PRELUDE, USES
from kernelab.codegen.names import Names, identifier
from kernelab.codegen.printing import Message, message_of
from kernelab.codegen.saving import early_saves, record, widest_saved
from kernelab.codegen.shells import INDENT, Outline
from kernelab.codegen.spelling import unwrapped
from kernelab.codegen.structure import (
    chosen,
    continues,
    ends_in_choice,
    is_short,
    ordered,
    sides,
    stop_values,
    stops,
    used,
    weight,
)
from kernelab.codegen.totals import Total, total_of
from kernelab.errors import NOWHERE, Span
from kernelab.lang.ir import (
    Alloc,
    Append,
    Assert,
    Atom,
    Atomic,
    Block,
    Call,
    Const,
    Custom,
    CustomRules,
    For,
    Function,
    If,
    Let,
    Load,
    Loop,
    Native,
    Print,
    Restore,
    Save,
    Stmt,
    Store,
    Var,
    While,
)
from kernelab.lang.native import Snippet, SnippetParam
from kernelab.lang.ops import SHAPE
from kernelab.lang.types import Array, Scalar, Value, float16, float64, scalar_of, size_of


def emit(functions: Sequence[Function], flavor: Flavor) -> Unit:
    """A unit with an entry for each function; they are scalarised, without calls, of distinct names."""
    names = [function.name for function in functions]
    assert len(set(names)) == len(names), f"two functions of one name in {names}"
    symbols = Names()
    bodies = [
        _Body(function, symbols.fresh(f"{identifier(function.name)}_entry"), flavor, symbols)
        for function in functions
    ]
    texts = [body.lines() for body in bodies]
    lines = [Line(text) for text in _prelude(flavor, set().union(*(body.needs for body in bodies)))]
    lines += _snippets(flavor, {snippet: name for body in bodies for snippet, name in body.natives.items()})
    entries = []
    for body, text in zip(bodies, texts, strict=True):
        first = len(lines)
        lines += text
        entries.append(body.info(range(first, len(lines))))
    return Unit(tuple(lines), tuple(entries))


def _prelude(flavor: Flavor, needs: set[str]) -> list[str]:
    needs |= {name for need in needs for name in USES.get(need, ())}
    wanted = [text for name, text in flavor.helpers.items() if name in needs]
    return "".join([PRELUDE, *wanted]).splitlines()


def _snippets(flavor: Flavor, natives: dict[Snippet, str]) -> list[Line]:
    """The functions that snippets become, and what they may name."""
    if not natives:
        return []
    lines = [Line(text) for text in snippets.library(flavor.target).splitlines()]
    return lines + [
        line for snippet, name in natives.items() for line in snippets.define(snippet, name, flavor.target)
    ]


class _Body:
    """Prints one function: names, the sites of its checks, and which helpers it calls."""

    def __init__(self, function: Function, symbol: str, flavor: Flavor, symbols: Names) -> None:
        assert not function.body.yields, f"{function.name} is no kernel"
        self.function = function
        self.symbol = symbol
        self.flavor = flavor
        self.layout = layout_of(function)
        self.symbols = symbols
        self.natives: dict[Snippet, str] = {}
        self.name = Names()
        self.used = used(function.body)
        self.totals: dict[Atomic, Total] = {}
        self.early = early_saves(function.body)
        self.widest = widest_saved(function.body)
        self.sites: list[Site] = []
        self.messages: list[Message] = []
        self.needs: set[str] = {"poll"}
        self.depth = 0
        self.written: list[Line] = []
        self.span: Span | None = None
        self.addresses: ChainMap[tuple[Var, tuple[Atom, ...]], str] = ChainMap()
        self.positions: ChainMap[tuple[Var, int, Atom], str] = ChainMap()

    def info(self, lines: range) -> EntryInfo:
        function, layout = self.function, self.layout
        sites, messages = tuple(self.sites), tuple(self.messages)
        coordinates, last_first = len(function.threads), function.descending
        return EntryInfo(function.name, self.symbol, layout, sites, coordinates, lines, messages, last_first)

    # -------------------------------------------------------------------------------------- lines

    def lines(self) -> list[Line]:
        """The whole entry."""
        shell = self.flavor.shell(self.outline())
        self.depth = shell.depth
        self.stmts(self.function.body.stmts)
        return [*map(Line, shell.head), *self.written, *map(Line, shell.tail)]

    def outline(self) -> Outline:
        function = self.function
        unpack = tuple(self.unpack())
        if function.linear is not None:
            self.name.alias(function.linear, "thread")
        coordinates = tuple(self.name(var) for var in function.threads)
        self.totals = {stmt: total_of(stmt, self.name) for stmt in self.flavor.totals(function)}
        self.needs.update(total.helper for total in self.totals.values())
        params = zip(function.params, self.layout.params, strict=True)
        residuals = tuple((self.name(var), param) for var, param in params if param.residual)
        arena, descending = self.layout.arena, function.descending
        heavy, totals = weight(function.body), tuple(self.totals.values())
        return Outline(self.symbol, unpack, coordinates, heavy, arena, residuals, descending, totals)

    def unpack(self) -> Iterator[str]:
        """The lines that read the arguments into locals."""
        for var, param in zip(self.function.params, self.layout.params, strict=True):
            name, slot = self.name.family(var, _suffixes(param)), param.slot
            if param.residual:
                continue
            if isinstance(var.type, Array):
                yield f"char* const {name} = (char*)args[{slot}];"
                extents = ", ".join(f"{name}_n{k} = args[{slot + 1 + k}]" for k in range(var.type.ndim))
                strides = ", ".join(
                    f"{name}_s{k} = args[{slot + 1 + var.type.ndim + k}]" for k in range(var.type.ndim)
                )
                yield f"const u64 {extents};"
                yield f"const i64 {strides};"
            else:
                scalar = scalar_of(var.type)
                value = spelling.load(scalar, f"(args + {slot})")
                yield f"const {spelling.value_type(scalar)} {name} = {value};"

    def line(self, text: str) -> None:
        self.written.append(Line(INDENT * self.depth + text, self.span))

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A block of C++: what is written within stands inside, and its addresses are forgotten after it."""
        self.line(f"{head} {{")
        self.depth += 1
        self.addresses, self.positions = self.addresses.new_child(), self.positions.new_child()
        span = self.span
        yield
        self.span = span
        self.addresses, self.positions = self.addresses.parents, self.positions.parents
        self.depth -= 1
        self.line("}")

    # -------------------------------------------------------------------------------------- values

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Const):
            return spelling.literal(atom, self.flavor.infinity, self.flavor.nan)
        return self.name(atom)

    def declare(self, var: Var, value: str | None = None) -> None:
        type = spelling.value_type(_scalar(var))
        self.line(f"{type} {self.name(var)}{'' if value is None else f' = {unwrapped(value)}'};")

    def assign(self, targets: Sequence[Var], values: Sequence[Atom]) -> None:
        """Give all targets their values at once, though C++ does it one after the other."""
        moves = [(self.name(t), self.atom(v), _scalar(t)) for t, v in zip(targets, values, strict=True)]
        for target, value, scalar in ordered(moves, self.name.numbered):
            declared = "" if scalar is None else f"{spelling.value_type(scalar)} "
            self.line(f"{declared}{target} = {unwrapped(value)};")

    def operation(self, stmt: Let) -> str:
        if stmt.op is SHAPE:
            array, axis = stmt.args
            assert isinstance(array, Var) and isinstance(axis, Const), "the axis of a shape is a constant"
            return f"(int){self.name(array)}_n{axis.value}"
        scalar = _scalar(stmt.out)
        types = [_scalar(arg) for arg in stmt.args]
        self.need_half(scalar)
        if scalar == float16 and float64 in types:
            self.needs.add("odd32")
        return self.flavor.operation(stmt.op, [self.atom(arg) for arg in stmt.args], types, scalar)

    def need_half(self, scalar: Scalar) -> None:
        if scalar == float16:
            self.needs |= {"from16", "to16", "round16"}

    # -------------------------------------------------------------------------------------- statements

    def stmts(self, stmts: Sequence[Stmt]) -> None:
        for stmt in stmts:
            self.span = None if stmt.span is NOWHERE else stmt.span
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Let(out):
                self.declare(out, self.operation(stmt))
            case Alloc():
                self.allocate(stmt)
            case Load(out):
                self.load(stmt)
            case Store(_, _, value):
                scalar, pointer = self.access(stmt)
                self.line(spelling.store(scalar, pointer, self.atom(value)))
            case Atomic():
                self.atomic(stmt)
            case If():
                self.choice(stmt)
            case For() | While():
                self.loop(stmt)
            case Assert(cond, kind, message):
                code = ASSERTION if kind == "assertion" else DIVISION
                self.check(f"!{self.atom(cond)}", f"{code}", Site(stmt.span, message=message))
            case Print():
                self.print(stmt)
            case Native():
                self.native(stmt)
            case Save(_, atoms):
                self.save(atoms, stmt in self.early)
            case Restore(_, outs):
                self.restore(outs)
            case Append(array, value):
                self.append(array, value)
            case Call(_, called) | Custom(_, _, CustomRules(called)):
                raise AssertionError(f"the call of {called.name} should have been inlined")
            case _:
                assert_never(stmt)

    def check(self, failed: str, code: str, site: Site) -> None:
        self.needs.add("fail")
        self.line(f"if ({failed}) {{ fail(status, {code}, {len(self.sites)}, thread); {self.flavor.leave} }}")
        self.sites.append(site)

    def print(self, stmt: Print) -> None:
        message = message_of(stmt)
        if float16 in message.types:
            self.need_half(float16)
        values = [self.atom(value) for value in stmt.values]
        lines, needs = self.flavor.print(message, len(self.messages), values)
        for line in lines:
            self.line(line)
        self.needs |= needs
        self.messages.append(message)

    # -------------------------------------------------------------------------------------- snippets

    def native(self, stmt: Native) -> None:
        """Call a snippet: arrays go as views, sums start at 0, results come out by components."""
        snippet = stmt.snippet
        self.needs |= {"fail", "fail_index"}
        if self.flavor.target == "cpu":
            snippets.refuse_device_words(snippet)
        if snippet not in self.natives:
            self.natives[snippet] = self.symbols.fresh(identifier(snippet.name))
        rest, given = iter(stmt.args), dict[str, str]()
        for param in snippet.arguments:
            if isinstance(param.type, Array):
                given[param.name] = self.view(param, next(rest), stmt)
            else:
                parts = [self.atom(next(rest)) for _ in range(size_of(param.type))]
                given[param.name] = snippets.construct(param.type, parts)
        outs: list[tuple[Value, str]] = []
        for total in snippet.sums:
            assert not isinstance(total.type, Array)
            given[total.name] = self.name.fresh(f"{total.name}_sum")
            outs.append((total.type, given[total.name]))
            self.line(snippets.declaration(total.type, given[total.name]))
        call = f"{self.natives[snippet]}({', '.join(given[param.name] for param in snippet.params)})"
        if snippet.result is not None and stmt.outs:
            name = self.name.fresh("result")
            outs.insert(0, (snippet.result, name))
            call = f"const auto {name} = {call}"
        self.line(f"{call};")
        if stmt.arrays:
            self.line(f"if (status[0]) {self.flavor.leave}")
        parts = [snippets.component(type, name, k) for type, name in outs for k in range(size_of(type))]
        for out, part in zip(stmt.outs, parts, strict=True):
            self.declare(out, part)

    def view(self, param: SnippetParam, array: Atom, stmt: Native) -> str:
        """The variable through which a snippet sees an array."""
        assert isinstance(array, Var) and isinstance(array.type, Array)
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
        packed = f"{stmt.snippet.name} takes {array.hint} as a pointer, and its elements lie apart"
        self.sites += [Site(stmt.span, array.hint), Site(stmt.span, message=packed)]
        return view

    # -------------------------------------------------------------------------------------- memory

    def allocate(self, stmt: Alloc) -> None:
        assert isinstance(stmt.out.type, Array)
        type, ndim = stmt.out.type, len(stmt.shape)
        scalar, inner = scalar_of(type.elem), size_of(type.elem)
        name = self.name.family(
            stmt.out, ["_data", *(f"_{letter}{k}" for letter in "ns" for k in range(ndim))]
        )
        count = math.prod(stmt.shape) * inner
        self.line(f"{spelling.memory_type(scalar)} {name}_data[{count}] = {{}};")
        self.line(f"char* const {name} = (char*){name}_data;")
        sizes = [math.prod(stmt.shape[k + 1 :]) * inner * spelling.size(scalar) for k in range(ndim)]
        extents = ", ".join(f"{name}_n{k} = {extent}" for k, extent in enumerate(stmt.shape))
        strides = ", ".join(f"{name}_s{k} = {size}" for k, size in enumerate(sizes))
        self.line(f"const u64 {extents};")
        self.line(f"const i64 {strides};")

    def load(self, stmt: Load) -> None:
        if stmt.held is not None:
            self.declare(stmt.out, self.atom(stmt.held))
            return
        scalar, pointer = self.access(stmt)
        self.declare(stmt.out, spelling.load(scalar, pointer))

    def atomic(self, stmt: Atomic) -> None:
        scalar, pointer = self.access(stmt)
        if stmt in self.totals:
            self.add_up(self.totals[stmt], stmt, pointer)
            return
        held = None if stmt.held is None else self.atom(stmt.held)
        out = self.name(stmt.out) if stmt.out in self.used and held is None else None
        compare = None if stmt.compare is None else self.atom(stmt.compare)
        lines, needs = self.flavor.atomic(stmt.kind, scalar, pointer, self.atom(stmt.value), compare, out)
        self.needs |= needs
        for line in lines:
            self.line(line)
        if held is not None:
            self.declare(stmt.out, held)

    def add_up(self, total: Total, stmt: Atomic, pointer: str) -> None:
        """Add to the running total of an element, which reaches memory when another's turn comes."""
        self.line(total.moved(unwrapped(pointer)))
        self.line(f"{total.name} += {self.atom(stmt.value)};")
        if stmt.held is not None:
            self.declare(stmt.out, self.atom(stmt.held))

    def access(self, stmt: Load | Store | Atomic) -> tuple[Scalar, str]:
        """The scalar type and the address of what a statement reads or writes."""
        assert isinstance(stmt.array.type, Array)
        scalar = scalar_of(stmt.array.type.elem)
        self.need_half(scalar)
        element = self.address(stmt.array, stmt.indices, stmt.span)
        return scalar, spelling.offset(element, (stmt.component or 0) * spelling.size(scalar))

    def address(self, array: Var, indices: tuple[Atom, ...], span: Span) -> str:
        """The address of an element, checked; the same one again where it is known already."""
        known = self.addresses.get((array, indices))
        if known is not None:
            return known
        name = self.name(array)
        terms = [name]
        for axis, index in enumerate(indices):
            terms.append(f"{self.position(array, axis, index, span)} * {name}_s{axis}")
        address = self.name.fresh(f"{name}_at")
        self.line(f"char* {address} = {' + '.join(terms)};")
        self.addresses[array, indices] = address
        return address

    def position(self, array: Var, axis: int, index: Atom, span: Span) -> str:
        """An index within the extent of an axis; below zero it counts from the end, as in Python."""
        known = self.positions.get((array, axis, index))
        if known is not None:
            return known
        name = self.name(array)
        position = self.name.fresh(f"{name}_i{axis}")
        self.line(f"i64 {position} = {unwrapped(self.atom(index))};")
        self.within(position, index, f"{name}_n{axis}", axis, Site(span, array.hint or name))
        self.positions[array, axis, index] = position
        return position

    def within(self, position: str, index: Atom, extent: str, axis: int, site: Site) -> None:
        self.needs.add("fail_index")
        outside, offender = f"(u64){position} >= {extent}", position
        if _scalar(index).kind == "int" and not (isinstance(index, Const) and index.value >= 0):
            self.needs.add("outside")
            outside, offender = f"outside({position}, {extent})", f"{position} - {extent}"
        number = len(self.sites)
        report = f"fail_index(status, {number}, thread, {offender}, {extent}, {axis});"
        self.line(f"if ({outside}) {{ {report} {self.flavor.leave} }}")
        self.sites.append(site)

    def save(self, atoms: Sequence[Atom], is_early: bool) -> None:
        offsets, size = record([_scalar(atom) for atom in atoms], self.widest)
        site = Site(self.span or NOWHERE)
        self.needs.add("room")
        most, code = (
            (f"status[{LIMIT}]", f"status[{LIMIT}] ? {FULL} : {MEMORY}") if is_early else ("0", f"{MEMORY}")
        )
        self.check(f"limit - top < {size} && !room(base, top, limit, {size}, {most})", code, site)
        for atom, offset in zip(atoms, offsets, strict=True):
            self.line(spelling.store(_scalar(atom), spelling.offset("top", offset), self.atom(atom)))
            self.need_half(_scalar(atom))
        self.line(f"top += {size};")

    def restore(self, outs: Sequence[Var]) -> None:
        offsets, size = record([_scalar(out) for out in outs], self.widest)
        self.line(f"top -= {size};")
        for out, offset in zip(outs, offsets, strict=True):
            self.declare(out, spelling.load(_scalar(out), spelling.offset("top", offset)))
            self.need_half(_scalar(out))

    def append(self, array: Var, value: Atom) -> None:
        name, scalar = self.name(array), _scalar(value)
        size = spelling.size(scalar)
        self.needs.add("more")
        full = f"{name}_length == {name}_capacity && !more({name}, {name}_capacity, {size})"
        self.check(full, f"{MEMORY}", Site(self.span or NOWHERE))
        self.need_half(scalar)
        self.line(spelling.store(scalar, f"({name} + {name}_length++ * {size})", self.atom(value)))

    # -------------------------------------------------------------------------------------- choices

    def choice(self, stmt: If) -> None:
        if not stmt.then.stmts and not stmt.orelse.stmts:
            for out, yes, no in zip(stmt.outs, stmt.then.yields, stmt.orelse.yields, strict=True):
                self.declare(out, f"{self.atom(stmt.cond)} ? {self.atom(yes)} : {self.atom(no)}")
            return
        for out in stmt.outs:
            self.declare(out)
        cond, first, second = sides(stmt)
        with self.braces(f"if ({self.condition(cond, stmt.cond)})"):
            self.stmts(first.stmts)
            self.assign(stmt.outs, first.yields)
        if second.stmts or second.yields:
            with self.braces("else"):
                self.stmts(second.stmts)
                self.assign(stmt.outs, second.yields)

    def condition(self, holds: bool, cond: Atom) -> str:
        return self.atom(cond) if holds else f"!{self.atom(cond)}"

    # -------------------------------------------------------------------------------------- loops

    def loop(self, stmt: Loop) -> None:
        kept = self.kept(stmt)
        for out, carry, init in zip(stmt.outs, stmt.carries, stmt.inits, strict=True):
            if carry in kept:
                self.declare(carry, self.atom(init))
                self.name.alias(out, self.name(carry))
        with self.braces(self.loop_head(stmt)):
            if not is_short(stmt):
                spent = weight(stmt.body)
                self.line(f"if ((budget -= {spent}) < 0 && (budget = poll(status)) < 0) {self.flavor.leave}")
            self.iteration(stmt, kept, stmt.body, stmt.body.yields)

    def kept(self, stmt: Loop) -> set[Var]:
        """The carries that need a variable: all but a stop that native breaks make superfluous."""
        kept = set(stmt.carries)
        if stmt.stop is not None and all(isinstance(value, Const) for value in stop_values(stmt)):
            carry, out = stmt.carries[stmt.stop], stmt.outs[stmt.stop]
            if carry not in self.used and out not in self.used:
                kept.remove(carry)
        return kept

    def loop_head(self, stmt: Loop) -> str:
        match stmt:
            case While():
                return "for (;;)"
            case For(_, index, count):
                type, k, n = spelling.value_type(_scalar(index)), self.name(index), self.atom(count)
                if stmt.reverse:
                    return f"for ({type} {k} = {n}; {k}-- > 0;)"
                return f"for ({type} {k} = 0; {k} < {n}; ++{k})"

    def iteration(self, loop: Loop, kept: set[Var], block: Block, yields: Sequence[Atom]) -> None:
        """The rest of an iteration: `block`, at whose end the carries take `yields` and the loop may end."""
        if loop.stop is not None and ends_in_choice(block, yields[loop.stop]):
            *before, last = block.stmts
            assert isinstance(last, If)
            self.stmts(before)
            self.span = None if last.span is NOWHERE else last.span
            self.fork(loop, kept, last, yields)
            return
        self.stmts(block.stmts)
        targets = [(c, y) for c, y in zip(loop.carries, yields, strict=True) if c in kept]
        self.assign([c for c, _ in targets], [y for _, y in targets])
        stop = None if loop.stop is None else yields[loop.stop]
        if loop.stop is None or stop is None or continues(stop):
            return
        self.line(
            "break;" if isinstance(stop, Const) else f"if ({self.name(loop.carries[loop.stop])}) break;"
        )

    def fork(self, loop: Loop, kept: set[Var], last: If, yields: Sequence[Atom]) -> None:
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


def _scalar(atom: Atom) -> Scalar:
    assert isinstance(atom.type, Scalar), f"{atom} is not scalarised"
    return atom.type


def _suffixes(param: Param) -> list[str]:
    """What the names of the locals that belong to a parameter end with."""
    if param.residual:
        return ["_handle", "_length", "_capacity"]
    return (
        [f"_{letter}{k}" for letter in "ns" for k in range(param.type.ndim)]
        if isinstance(param.type, Array)
        else []
    )
