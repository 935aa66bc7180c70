r"""Prints the lines of a listing as LaTeX, for slides and for MathJax.

    v3_bar += cos(v1) * v4_bar        &\bar{v}_3 \mathrel{+}= \cos(v_1)\,\bar{v}_4

Reads the Python text of the lines, so it knows nothing of the IR.  The formulas need no package but amsmath.
Source of the form: A. Griewank, A. Walther, "Evaluating Derivatives", 2nd edition, section 3.2.
"""

import ast
import re
from collections.abc import Sequence

GREEK = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi
    psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
"""
KNOWN = "sin cos tan sinh cosh tanh exp log min max det arcsin arccos arctan"
"""The functions that LaTeX has a command for."""

COMMANDS = {name: rf"\{name}" for name in KNOWN.split()}
COMMANDS |= {"asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan", "determinant": r"\det"}
AROUND = {
    "sqrt": (r"\sqrt{", "}"),
    "abs": (r"\left|", r"\right|"),
    "length": (r"\left\|", r"\right\|"),
    "floor": (r"\left\lfloor ", r"\right\rfloor "),
    "ceil": (r"\left\lceil ", r"\right\rceil "),
}
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: r"\cdot", ast.Div: "/",
    ast.MatMult: r"\,", ast.BitXor: r"\oplus", ast.BitAnd: r"\mathbin{\&}",
    ast.BitOr: r"\mid", ast.LShift: r"\ll", ast.RShift: r"\gg", ast.Mod: r"\;\mathrm{mod}\;",
    ast.Lt: "<", ast.LtE: r"\leq", ast.Gt: ">", ast.GtE: r"\geq", ast.Eq: "=", ast.NotEq: r"\neq",
    ast.And: r"\wedge", ast.Or: r"\vee",
}  # fmt: skip
SUM, PRODUCT, SIGN, POWER, ATOM = 5, 6, 7, 8, 9
BINDS: dict[type[ast.AST], int] = {ast.Add: SUM, ast.Sub: SUM}
"""How tightly operators bind; those that are missing are products."""

_NAME = re.compile(r"(?P<stem>[A-Za-z]+?)_?(?P<number>\d*)(?P<rest>(?:_\w+)?)$")
_ACCENTS = {"bar": (r"\bar", r"\overline"), "dot": (r"\dot", r"\dot")}


def latex(lines: Sequence[str]) -> str:
    """The lines of a program, without its signature, as an ``aligned`` environment."""
    head = next(i for i, line in enumerate(lines) if line.endswith(":"))
    rows = " \\\\\n".join(map(_row, lines[head + 1 :]))
    return f"\\begin{{aligned}}\n{rows}\n\\end{{aligned}}"


def _row(line: str) -> str:
    text = line.strip()
    if text.startswith("# "):
        return rf"&\textbf{{{text[2:].partition(':')[0]}}}"
    depth = (len(line) - len(line.lstrip())) // 4 - 1
    return "&" + r"\quad " * depth + _statement(text)


def _statement(text: str) -> str:
    if text in ("else:", "break", "pass"):
        return rf"\textbf{{{text}}}"
    whole = text.removeprefix("el") if text.startswith("elif ") else text
    tree = ast.parse(f"{whole}\n  pass" if text.endswith(":") else whole).body[0]
    match tree:
        case ast.Assign(targets, value):
            return " = ".join(map(formula, [*targets, value]))
        case ast.AugAssign(target, op, value):
            return rf"{formula(target)} \mathrel{{{_symbol(op)}}}= {formula(value)}"
        case ast.For(target, call):
            return rf"\textbf{{for }} {formula(target)} = {_range(call)}\textbf{{:}}"
        case ast.While(test):
            return rf"\textbf{{while }} {formula(test)}\textbf{{:}}"
        case ast.If(test):
            word = "else if" if text.startswith("elif ") else "if"
            return rf"\textbf{{{word} }} {formula(test)}\textbf{{:}}"
        case ast.Return(ast.expr() as value):
            return rf"\textbf{{return }} {formula(value)}"
        case ast.Assert(test):
            return rf"\textbf{{assert }} {formula(test)}"
        case ast.Expr(value):
            return formula(value)
        case _:
            return rf"\mathtt{{{_escaped(text)}}}"


def _range(call: ast.expr) -> str:
    """The values that a loop's index takes."""
    match call:
        case ast.Call(ast.Name("reversed"), [ast.Call(_, [count])]):
            return rf"{_last(count)}, \dots, 0"
        case ast.Call(_, [count]):
            return rf"0, \dots, {_last(count)}"
        case _:
            raise AssertionError("a loop of a listing counts from 0")


def _last(count: ast.expr) -> str:
    match count:
        case ast.Constant(int(number)):
            return str(number - 1)
        case _:
            return f"{_within(count, SUM)} - 1"


# --------------------------------------------------------------------------------------------------- formulas


def formula(node: ast.expr) -> str:
    """An expression of Python as a formula."""
    return _formula(node)[0]


def _within(node: ast.expr, binds: int) -> str:
    """A formula, in parentheses where the operator around it binds more tightly."""
    text, own = _formula(node)
    return text if own >= binds else _parenthesized(text)


def _parenthesized(text: str) -> str:
    return rf"\left({text}\right)" if r"\frac" in text else f"({text})"


def _formula(node: ast.expr) -> tuple[str, int]:
    """A formula, and how tightly its outermost operator binds."""
    match node:
        case ast.Name(name):
            return symbol(name), ATOM
        case ast.Constant(value):
            return _constant(value), ATOM
        case ast.Subscript(array, index):
            return _element(array, index), ATOM
        case ast.Attribute(value, name):
            return rf"{_within(value, ATOM)}.\mathrm{{{name}}}", ATOM
        case ast.Call(function, args):
            return _call(ast.unparse(function), args)
        case ast.BinOp(a, op, b):
            return _infix(a, op, b)
        case ast.UnaryOp(op, x):
            sign = {ast.USub: "-", ast.Not: r"\neg ", ast.Invert: r"\sim "}.get(type(op), "+")
            return f"{sign}{_within(x, PRODUCT)}", SIGN
        case ast.BoolOp(op, values):
            return f" {_symbol(op)} ".join(_within(value, 3) for value in values), 2
        case ast.Compare(left, [op], [right]):
            return f"{_within(left, SUM)} {_symbol(op)} {_within(right, SUM)}", 3
        case ast.IfExp(test, body, orelse):
            return rf"{formula(body)}\;\mathrm{{if}}\;{formula(test)}\;\mathrm{{else}}\;{formula(orelse)}", 1
        case ast.Tuple(items):
            return r",\ ".join(map(formula, items)), 0
        case _:
            return rf"\mathtt{{{_escaped(ast.unparse(node))}}}", 0


def symbol(name: str) -> str:
    """A name as a symbol: ``v3_bar`` is a v with a bar and the index 3."""
    parts = name.split("_")
    accent = next((part for part in parts[1:] if part in _ACCENTS), "")
    if accent:
        parts.remove(accent)
    match = _NAME.match("_".join(parts))
    if match is None:
        return rf"\mathrm{{{_escaped(name)}}}"
    stem, number, rest = match["stem"], match["number"], match["rest"].strip("_")
    short, long = _ACCENTS.get(accent, ("", ""))
    is_letter = len(stem) == 1 or stem in GREEK.split()
    text = rf"\{stem}" if stem in GREEK.split() else stem if is_letter else rf"\mathit{{{stem}}}"
    command = short if is_letter else long
    text = rf"{command}{{{text}}}" if command else text
    words = (part if len(part) < 2 or part.isdigit() else rf"\mathrm{{{part}}}" for part in rest.split("_"))
    indices = ",".join(filter(None, [number, *words]))
    return _with_index(text, indices) if indices else text


def _with_index(text: str, index: str) -> str:
    return f"{text}_{index}" if len(index) == 1 else f"{text}_{{{index}}}"


def _escaped(text: str) -> str:
    return re.sub(r"[_{}#$%&]", r"\\\g<0>", text)


def _constant(value: object) -> str:
    if isinstance(value, bool | str):
        return rf"\mathrm{{{_escaped(str(value))}}}"
    text = f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)
    digits, _, power = text.partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if power else text


def _element(array: ast.expr, index: ast.expr) -> str:
    name, place = _within(array, ATOM), formula(index)
    return f"{name}[{place}]" if "_" in name else _with_index(name, place)


def _call(name: str, args: list[ast.expr]) -> tuple[str, int]:
    match name, args:
        case _, [x] if name in AROUND:
            before, after = AROUND[name]
            return f"{before}{formula(x)}{after}", ATOM
        case (("dot" | "cross"), [a, b]):
            sign = r"\cdot" if name == "dot" else r"\times"
            return f"{_within(a, SIGN)} {sign} {_within(b, SIGN)}", PRODUCT
        case "pow", [a, b]:
            return f"{{{_within(a, ATOM)}}}^{{{formula(b)}}}", POWER
        case "transpose", [a]:
            return rf"{{{_within(a, ATOM)}}}^{{\top}}", POWER
        case _:
            command = COMMANDS.get(name) or rf"\operatorname{{{_escaped(name)}}}"
            return command + _parenthesized(", ".join(map(formula, args))), ATOM


def _infix(a: ast.expr, op: ast.operator, b: ast.expr) -> tuple[str, int]:
    match op:
        case ast.Div():
            return rf"\frac{{{formula(a)}}}{{{formula(b)}}}", ATOM
        case ast.FloorDiv():
            return rf"\left\lfloor \frac{{{formula(a)}}}{{{formula(b)}}}\right\rfloor ", ATOM
        case ast.Pow():
            return f"{{{_within(a, ATOM)}}}^{{{formula(b)}}}", POWER
        case ast.Mult():
            left, right = _within(a, PRODUCT), _within(b, POWER)
            times = r" \cdot " if right[:1].isdigit() else r"\,"
            return f"{left}{times}{right}", PRODUCT
        case _:
            binds = BINDS.get(type(op), PRODUCT)
            return f"{_within(a, binds)} {_symbol(op)} {_within(b, binds + 1)}", binds


def _symbol(op: ast.AST) -> str:
    return SYMBOLS[type(op)]
