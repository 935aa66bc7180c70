"""The same program without loops: each iteration written out, each jump a flag that guards what follows.

    before    for k in range(m):          after    start, stop, on = 0, m, True
                  if c:                             if on and start < stop:
                      break                             k = start; start += 1; live = True
                  u = f(u, k)                           if c: on = live = False
                                                        if live: u = f(u, k)
                                                    ... as many times as the loop may run

Knows Python's syntax and that a loop of a generated program makes at most `TRIPS` iterations.
"""

import ast
import copy

TRIPS = 5


def unrolled(text: str, limit: int = 160) -> str | None:
    """The text with its loops written out, the innermost ones alone if it grows past `limit` statements.

    None if that is still too long, or if there is no loop.
    """
    for only_innermost in (False, True):
        tree = ast.parse(text)
        if not any(isinstance(node, ast.For | ast.While) for node in ast.walk(tree)):
            return None
        unroller = _Unroller(only_innermost, limit)
        for stmt in tree.body:
            if isinstance(stmt, ast.FunctionDef):
                stmt.body = unroller.block(stmt.body)
        if unroller.grown <= limit:
            return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return None


class _Unroller:
    def __init__(self, only_innermost: bool, limit: int) -> None:
        self.only_innermost = only_innermost
        self.limit = limit
        self.loops = 0
        self.grown = 0

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [new for stmt in body for new in self.stmt(stmt)]

    def stmt(self, stmt: ast.stmt) -> list[ast.stmt]:
        self.grown += 1
        if self.grown > self.limit:
            return [stmt]
        match stmt:
            case ast.If():
                stmt.body, stmt.orelse = self.block(stmt.body), self.block(stmt.orelse)
            case ast.For() | ast.While() if self.only_innermost and _has_loop(stmt.body):
                stmt.body = self.block(stmt.body)
            case ast.For():
                return self.for_(stmt)
            case ast.While():
                return self.while_(stmt)
        return [stmt]

    def flags(self) -> tuple[str, str]:
        self.loops += 1
        return f"on_{self.loops}", f"live_{self.loops}"

    def while_(self, loop: ast.While) -> list[ast.stmt]:
        on, live = self.flags()
        lines = _parsed(f"{on} = True\n")
        for _ in range(TRIPS):
            (first,) = _parsed(f"if {on}:\n    {on} = {ast.unparse(loop.test)}\n")
            (step,) = _parsed(f"if {on}:\n    {live} = True\n")
            lines += [first, self.iteration(step, loop.body, on, live)]
        return lines

    def for_(self, loop: ast.For) -> list[ast.stmt]:
        on, live = self.flags()
        assert isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call)
        index, bounds = loop.target.id, [ast.unparse(arg) for arg in loop.iter.args]
        start, stop = ("0", bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else "1"
        at, end, by = f"at_{self.loops}", f"end_{self.loops}", f"by_{self.loops}"
        order = ">" if step.startswith("-") else "<"
        lines = _parsed(f"{on} = True\n{at} = {start}\n{end} = {stop}\n{by} = {step}\n")
        for _ in range(TRIPS):
            head = (
                f"if {on} and {at} {order} {end}:\n    {index} = {at}\n    {at} += {by}\n    {live} = True\n"
            )
            (once,) = _parsed(head)
            lines.append(self.iteration(once, loop.body, on, live))
        return lines

    def iteration(self, head: ast.stmt, body: list[ast.stmt], on: str, live: str) -> ast.stmt:
        assert isinstance(head, ast.If)
        head.body += _guarded(self.block(copy.deepcopy(body)), on, live)
        return head


def _guarded(body: list[ast.stmt], on: str, live: str) -> list[ast.stmt]:
    """A body whose jumps set flags, and whose statements behind a jump ask them."""
    lines: list[ast.stmt] = []
    for position, stmt in enumerate(body):
        match stmt:
            case ast.Break():
                return [*lines, *_parsed(f"{on} = False\n{live} = False\n")]
            case ast.Continue():
                return [*lines, *_parsed(f"{live} = False\n")]
            case ast.If() if _jumps(stmt):
                stmt.body, stmt.orelse = _guarded(stmt.body, on, live), _guarded(stmt.orelse, on, live)
                rest = _guarded(body[position + 1 :], on, live)
                guard = [ast.If(ast.Name(live, ast.Load()), rest, [])] if rest else []
                return [*lines, stmt, *guard]
        lines.append(stmt)
    return lines


def _jumps(stmt: ast.stmt) -> bool:
    """Whether a statement leaves the loop around it, or its iteration."""
    match stmt:
        case ast.Break() | ast.Continue():
            return True
        case ast.If(_, body, orelse):
            return any(map(_jumps, [*body, *orelse]))
    return False


def _has_loop(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.For | ast.While) for stmt in body for node in ast.walk(stmt))


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body
