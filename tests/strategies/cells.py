"""Arbitrary and mutated cells: kernels of the tests with nodes, tokens or characters replaced, and noise.

A cell is a function of its seed alone, so a finding is named by one number.  Mutations edit the text: to
parse and to print a tree would take longer than to compile the cell.
"""

import ast
import io
import random
import re
import tokenize
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Any

LONGEST = 1500
"""Characters of the longest text of the tests that is mutated."""

_FOLDER = Path(__file__).parent.parent

_EXPRESSIONS = """
None|True|lambda q: q|(yield)|[1,2]|{}|{1:2}|10**400|1j|"s"|b"x"|f"{x}"|...|(a:=1)|x if x else y
[i for i in range(3)]|not x|-x|~x|x.y.z|x[1:2]|x[::-1]|x[:,0]|x[...]|f(*a)|f(**k)|f(a=1)|()|(1,)|1<2<3
x is y|x in y|1e400|float("nan")|int|vec3|array|tid|range|zeros|print|kl|kl.sin|np.pi|N|x @ y|x ** 2.5
x // 0|x % 0|await x|tid()|x[tid()]|range(N)|"{}"|9223372036854775808|2147483648|-2147483648|1e-400
float("inf")|x[-1]|x[0][1]|x.shape|x.shape[0]|len(x)|vec3(1.0)|"é"|mat33|vec3(1,2,3)[7]|array[float]
array(dtype=float)|Any|kl.array[kl.Any]|"forward"|range(0, 10, 0)|curlnoise(vec3(1.0))
"""

_STATEMENTS = r"""
pass|break|continue|return|return x|del x|global x|nonlocal x|assert x|raise x|import math|x: int
x: int = 1|x += 1|x @= 1|x, y = y, x|(x) = 1|[x, y] = 1, 2|x[0], y[0] = 1, 2|for i in x: pass
for i, j in x: pass|x = y = z = 1|for x[0] in range(3): pass|while x: pass|while True: pass|with x: pass
try:\n  x\nexcept: pass|class A: pass|class B:\n  a: float\n  b: vec3|def g(a): return a|def g(): yield
lambda: 0|async def q(): pass|match x:\n  case 1: pass|if x: pass|for i in range(3): continue\nelse: x = 1
"doc"|@kernel\ndef k(x: array[float]): x[0] = 1.0|@func\ndef f(x: float): return x|x[tid()] = 1.0
@func_grad(f)\ndef adj_f(x, adj_ret): adjoint[x] += adj_ret|print("%f", x)|print(f"{x} {y:.3f}")|x *= x
@func_native("return x;")\ndef n(x: float) -> float: ...|def f(x): return f(x)
"""

_TOKENS = (
    *("lambda", "yield", "await", "async", "*", "**", ":=", "...", '"""', "'", "1j", "10**400", "0x", "0b2"),
    *("not", "is", "in", "with", "try", "class", "global", "nonlocal", "del", "@", "->", "[[", "]", "(", ")"),
    *("\u2212", "\u00e9", "\u200b", "\ud800", "\x00", "\x0c", "\t", "\r", "\r\n", "\\\n", "\ufeff"),
    *(
        "x" * 300,
        "9" * 5000,
        "1e400",
        "-1",
        "#",
        ";",
        ":",
        "\n",
        "\n    ",
        "{",
        "}",
        "!",
        "$",
        "?",
        "f'{",
        "b'",
    ),
)


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the tests: where its expressions and statements stand, and its tokens."""

    text: str
    expressions: tuple[tuple[int, int], ...]
    statements: tuple[tuple[int, int], ...]
    tokens: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class Pool:
    """The texts of the tests, and what they consist of."""

    texts: tuple[Text, ...]
    expressions: tuple[str, ...]
    statements: tuple[str, ...]
    tokens: tuple[str, ...]


def cell(seed: int) -> str:
    """The cell of a seed."""
    rng = random.Random(seed)
    mutate = rng.choices((_nodes, _tokens, _characters, _several, _noise, _nested), (61, 18, 10, 6, 4, 1))[0]
    return mutate(rng)


@cache
def pool() -> Pool:
    """The pool of this checkout."""
    whole = sorted(set(_texts_of_tests()))
    texts = [
        _analysed(text)
        for text in dict.fromkeys([*whole, *(part for text in whole for part in _parts(text))])
    ]
    expressions = [text.text[first:end] for text in texts for first, end in text.expressions]
    statements = [_dedented(text.text, *place) for text in texts for place in text.statements]
    tokens = [token for text in texts for token in text.tokens]
    expressions += _split(_EXPRESSIONS) * 8
    statements += [text.replace("\\n", "\n") for text in _split(_STATEMENTS)] * 8
    return Pool(tuple(texts), tuple(expressions), tuple(statements), (*tokens, *_TOKENS * 20))


def _analysed(text: str) -> Text:
    places: dict[type[ast.AST], set[tuple[int, int]]] = {ast.expr: set(), ast.stmt: set()}
    starts = [0]  # of each line, in bytes
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for node in _outside_of_f_strings(ast.parse(text)):
        for kind, found in places.items():
            if isinstance(node, kind):
                ends = (
                    starts[node.lineno - 1] + node.col_offset,
                    starts[node.end_lineno - 1] + node.end_col_offset,
                )
                found.add((ends[0], ends[1]))
    every = places.values() if text.isascii() else ((), ())
    expressions, statements = (tuple(sorted(found)) for found in every)
    tokens = tuple(_tokens_of(text))
    names = tuple(name for name in dict.fromkeys(tokens) if name.isidentifier() and not iskeyword(name))
    return Text(text, expressions, statements, tokens, names)


def _outside_of_f_strings(tree: ast.AST) -> Iterator[Any]:
    """The nodes of a tree, without those in f-strings, whose places some versions of Python do not know."""
    yield tree
    if not isinstance(tree, ast.JoinedStr):
        for node in ast.iter_child_nodes(tree):
            yield from _outside_of_f_strings(node)


def _parts(text: str) -> Iterator[str]:
    """Each def of a text with what it names of the others: short texts take less time, and find as much."""
    lines, body = text.split("\n"), ast.parse(text).body
    named = {id(stmt): {node.id for node in ast.walk(stmt) if isinstance(node, ast.Name)} for stmt in body}
    for stmt in body:
        needed, grown = [stmt], True
        while grown:
            names = {name for one in needed for name in named[id(one)]}
            more = [one for one in body if one not in needed and _sets(one) & names]
            needed, grown = needed + more, bool(more)
        kept = [one for one in body if one in needed]
        part = "\n".join("\n".join(lines[_first(one) - 1 : one.end_lineno]) for one in kept)
        if len(kept) < len(body) and _is_cell(part):
            yield part


def _sets(stmt: ast.stmt) -> set[str]:
    """The names to which a statement at the top gives a meaning."""
    if isinstance(stmt, ast.FunctionDef | ast.ClassDef):
        return {stmt.name}
    return {
        node.id for node in ast.walk(stmt) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _first(stmt: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    return min([stmt.lineno, *(one.lineno for one in getattr(stmt, "decorator_list", ()))])


def _dedented(text: str, first: int, end: int) -> str:
    """A statement of a text, its further lines as if it stood at the left."""
    margin = "\n" + " " * (first - text.rfind("\n", 0, first) - 1)
    return text[first:end].replace(margin, "\n")


def _split(texts: str) -> list[str]:
    return texts.strip("\n").replace("\n", "|").split("|")


def _texts_of_tests() -> Iterator[str]:
    for path in sorted(_FOLDER.rglob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_cell(node.value):
                yield node.value


def _is_cell(text: str) -> bool:
    if len(text) > LONGEST or "def " not in text or "array" not in text:
        return False
    if "curlnoise" in text and "vec4" in text:  # thousands of lines of machine code: one takes seconds
        return False
    try:
        return any(isinstance(stmt, ast.FunctionDef) for stmt in ast.parse(text).body)
    except (SyntaxError, ValueError):
        return False


def _tokens_of(text: str) -> list[str]:
    try:
        return [
            token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.string
        ]
    except (tokenize.TokenError, SyntaxError):
        return text.split()


# ------------------------------------------------------------------------------------------------- mutations


def _text(rng: random.Random) -> Text:
    """A text of the tests, short ones more often."""
    return min(rng.choices(pool().texts, k=3), key=len)


def _nodes(rng: random.Random) -> str:
    """A text with one to three expressions or statements replaced by others."""
    chosen, known = _text(rng), pool()
    edits = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.75 and chosen.expressions:
            new = _at_home(rng, rng.choice(known.expressions), chosen)
            edits.append((*rng.choice(chosen.expressions), new if rng.random() < 0.4 else f"({new})"))
        elif chosen.statements:
            first, end = rng.choice(chosen.statements)
            margin = first - chosen.text.rfind("\n", 0, first) - 1
            new = _at_home(rng, rng.choice(known.statements), chosen)
            edits.append((first, end, new.replace("\n", "\n" + " " * margin)))
    text, last = chosen.text, len(chosen.text)
    for first, end, new in sorted(edits, reverse=True):
        if end <= last:
            text, last = text[:first] + new + text[end:], first
    return text


_A_VALUE = re.compile(r"(?<![.\w])[a-z_]\w*\b(?![ ]*[=(\"'\w])")


def _at_home(rng: random.Random, new: str, chosen: Text) -> str:
    """Text that comes from elsewhere, most times with names of this text in it."""
    if rng.random() < 0.25 or not chosen.names:
        return new
    return _A_VALUE.sub(lambda found: found[0] if iskeyword(found[0]) else rng.choice(chosen.names), new)


def _tokens(rng: random.Random) -> str:
    """A text with tokens inserted, dropped, doubled or exchanged."""
    known, chosen = pool(), _text(rng)
    text = chosen.text
    for _ in range(rng.choice((1, 1, 2, 4))):
        old, new = rng.choice(chosen.tokens), rng.choice(known.tokens)
        at = text.find(old, rng.randrange(max(1, len(text))))
        if at < 0:
            continue
        put = rng.choice(("", new, f"{new} ", old + old, f"{old}{new}", f"{old} {new}"))
        text = text[:at] + put + text[at + len(old) :]
    return text


def _characters(rng: random.Random) -> str:
    """A text with some characters replaced, or cut off."""
    text = _text(rng).text
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice((_character(rng), "", "", " ", "\n")) + text[at + rng.randrange(3) :]
    return text if rng.random() < 0.8 else text[: rng.randrange(len(text) + 1)]


def _character(rng: random.Random) -> str:
    limit = rng.choice((128, 128, 0x3000, 0x110000))
    return chr(rng.randrange(limit))


def _several(rng: random.Random) -> str:
    """Texts one below the other, whose names may meet."""
    return "\n".join(_text(rng).text for _ in range(rng.choice((2, 2, 3, 6))))


def _noise(rng: random.Random) -> str:
    """Characters, or tokens of kernels, in any order."""
    if rng.random() < 0.4:
        return "".join(_character(rng) for _ in range(rng.randrange(200)))
    tokens = pool().tokens
    return rng.choice(("", "def k(x: array[float]):\n    ")) + " ".join(
        rng.choice(tokens) for _ in range(rng.randrange(60))
    )


_BODY = "def k(x: array[float], n: int):\n    a = 1.0\n    {}\n    x[0] = a\n"
_NESTED: tuple[Callable[[int], str], ...] = (
    lambda n: _BODY.format("a = " + "(" * n + "a" + ")" * n),
    lambda n: _BODY.format("a = " + "-" * n + "a"),
    lambda n: _BODY.format("a = " + " + ".join(["a"] * n)),
    lambda n: _BODY.format("a = " + "sin(" * n + "a" + ")" * n),
    lambda n: _BODY.format("a = x" + "[0]" * n),
    lambda n: _BODY.format("a = x" + ".y" * n),
    lambda n: _BODY.format("a = " + "a if n else " * n + "a"),
    lambda n: _BODY.format("a = float(" + " < ".join(["n"] * n) + ")"),
    lambda n: _BODY.format("if n: a = 2.0\n" + "".join(f"    elif n == {k}: a = {k}.0\n" for k in range(n))),
    lambda n: _BODY.format("\n    ".join("  " * k + "if n:" for k in range(min(n, 98))) + " a = 2.0"),
    lambda n: _BODY.format("\n    ".join(["a = a * 1.5"] * n)),
    lambda n: "".join(f"def f{k}(x: float):\n    return f{k + 1}(x)\n" for k in range(n)) + "def g(): pass\n",
    lambda n: f"def k({', '.join(f'a{k}: float' for k in range(n))}):\n    pass\n",
    lambda n: _BODY.format(f"a = '{'é' * n}'"),
    lambda n: _BODY.format(f"a = {'9' * n}"),
    lambda n: "N = " + "[" * n + "]" * n + "\n" + _BODY.format("pass"),
)


def _nested(rng: random.Random) -> str:
    """One construct, deep or long."""
    return rng.choice(_NESTED)(rng.choice((*(2, 30, 90, 120, 300) * 8, 1200, 1200, 5000)))
