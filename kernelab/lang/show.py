"""The IR as text, for golden files, messages and debugging: one statement a line, blocks indented."""

from typing import assert_never

from kernelab.lang import ir


class Names:
    """Gives every Var of a function a readable name of its own: its hint, numbered where hints repeat."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._of: dict[ir.Var | ir.Stack, str] = {}
        self._taken: set[str] = set(reserved)
        self._next: dict[str, int] = {}

    def __call__(self, var: ir.Var | ir.Stack) -> str:
        """The name of a Var, always the same."""
        if var not in self._of:
            self._of[var] = self.fresh(var.hint) if var.hint else self.numbered("t")
        return self._of[var]

    def fresh(self, hint: str) -> str:
        """A name that nobody has: the hint itself if it is free."""
        if hint in self._taken:
            return self.numbered(hint)
        self._taken.add(hint)
        return hint

    def numbered(self, hint: str) -> str:
        """A name of the form ``hint_7`` that nobody has."""
        number = self._next.get(hint, 1)
        while f"{hint}_{number}" in self._taken:
            number += 1
        self._next[hint] = number + 1
        self._taken.add(f"{hint}_{number}")
        return f"{hint}_{number}"


def show(function: ir.Function) -> str:
    """The whole function as text."""
    return _Printer(Names()).function(function)


class _Printer:
    def __init__(self, names: Names) -> None:
        self.name = names

    def function(self, function: ir.Function) -> str:
        params = self.typed(function.params)
        threads = f" threads {self.typed(function.threads)}" if function.threads else ""
        threads += f" linear {self.typed((function.linear,))}" if function.linear is not None else ""
        return "\n".join([f"{function.name}({params}){threads}", *self.block(function.body)])

    def block(self, block: ir.Block) -> list[str]:
        lines = [line for stmt in block.stmts for line in self.stmt(stmt)]
        if block.yields:
            lines.append(f"yield {self.atoms(block.yields)}")
        return ["  " + line for line in lines]

    def stmt(self, stmt: ir.Stmt) -> list[str]:
        match stmt:
            case ir.Let(out, op, args):
                return [f"{self.typed((out,))} = {op.name}({self.atoms(args)})"]
            case ir.Alloc(out, shape):
                return [f"{self.typed((out,))} = local{list(shape)}"]
            case ir.Load(out, array, indices):
                held = f" held {self.atom(stmt.held)}" if stmt.held is not None else ""
                return [f"{self.typed((out,))} = {self.element(array, indices, stmt.component)}{held}"]
            case ir.Store(array, indices, value):
                return [f"{self.element(array, indices, stmt.component)} = {self.atom(value)}"]
            case ir.Atomic(out, kind, array, indices, value):
                held = f" held {self.atom(stmt.held)}" if stmt.held is not None else ""
                target = self.element(array, indices, stmt.component)
                compared = "" if stmt.compare is None else f"{self.atom(stmt.compare)}, "
                return [f"{self.typed((out,))} = atomic_{kind}({target}, {compared}{self.atom(value)}){held}"]
            case ir.If(outs, cond, then, orelse):
                head = f"{self.assigned(outs)}if {self.atom(cond)}"
                tail = ["else", *self.block(orelse)] if orelse.stmts or orelse.yields else []
                return [head, *self.block(then), *tail]
            case ir.For():
                return [self.for_head(stmt), *self.block(stmt.body)]
            case ir.While():
                head = f"{self.assigned(stmt.outs)}while{self.carried(stmt)}"
                head += f" until {self.name(stmt.carries[stmt.stop])}"
                return [head, *self.block(stmt.body)]
            case ir.Assert(cond, kind, message):
                return [f"assert {self.atom(cond)} {kind} {message!r}"]
            case ir.Print(texts, specs, values):
                named = [f"{spec}{{{self.atom(v)}}}" for spec, v in zip(specs, values, strict=True)]
                return [f"print {''.join(t + n for t, n in zip(texts, [*named, ''], strict=True))!r}"]
            case ir.Native(outs, snippet, args):
                return [f"{self.assigned(outs)}native {snippet.name}({self.atoms(args)})"]
            case ir.Call(outs, function, args):
                verb = "gradient" if stmt.gradient else "call"
                return [f"{self.assigned(outs)}{verb} {function.name}({self.atoms(args)})"]
            case ir.Custom(outs, args, rules, body):
                head = f"{self.assigned(outs)}custom {rules.function.name}({self.atoms(args)})"
                return [head, *self.block(body)]
            case ir.Save(stack, atoms):
                return [f"save {self.name(stack)}({self.atoms(atoms)})"]
            case ir.Restore(stack, outs):
                return [f"{self.assigned(outs)}restore {self.name(stack)}"]
            case ir.Append(array, value):
                return [f"append {self.name(array)} {self.atom(value)}"]
            case _:
                assert_never(stmt)

    def for_head(self, stmt: ir.For) -> str:
        direction = " reversed" if stmt.reverse else ""
        until = f" until {self.name(stmt.carries[stmt.stop])}" if stmt.stop is not None else ""
        count = f"for {self.name(stmt.index)} < {self.atom(stmt.count)}"
        return f"{self.assigned(stmt.outs)}{count}{direction}{self.carried(stmt)}{until}"

    def carried(self, stmt: ir.For | ir.While) -> str:
        pairs = zip(stmt.carries, stmt.inits, strict=True)
        inits = ", ".join(f"{self.typed((var,))} = {self.atom(init)}" for var, init in pairs)
        return f" carry {inits}" if inits else ""

    def element(self, array: ir.Var, indices: tuple[ir.Atom, ...], component: int | None) -> str:
        part = "" if component is None else f".{component}"
        return f"{self.name(array)}[{self.atoms(indices)}]{part}"

    def assigned(self, outs: tuple[ir.Var, ...]) -> str:
        return f"{self.typed(outs)} = " if outs else ""

    def typed(self, vars: tuple[ir.Var, ...]) -> str:
        return ", ".join(f"{self.name(var)}: {var.type}" for var in vars)

    def atoms(self, atoms: tuple[ir.Atom, ...]) -> str:
        return ", ".join(self.atom(atom) for atom in atoms)

    def atom(self, atom: ir.Atom) -> str:
        return repr(atom.value) if isinstance(atom, ir.Const) else self.name(atom)
