"""Arbitrary and mutated cells: kernels of the tests with nodes, tokens or characters replaced, and noise.

A cell is a function of its seed alone, so a finding is named by one number.
"""

import ast
import copy
import io
import random
import tokenize
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
class Pool:
    """The texts of the tests, and what they consist of."""

    texts: tuple[str, ...]
    expressions: tuple[ast.expr, ...]
    statements: tuple[ast.stmt, ...]
    tokens: tuple[str, ...]


def cell(seed: int) -> str:
    """The cell of a seed."""
    rng = random.Random(seed)
    mutate = rng.choices((_nodes, _tokens, _characters, _several, _noise, _nested), (60, 18, 10, 6, 4, 2))[0]
    return mutate(rng)


@cache
def pool() -> Pool:
    """The pool of this checkout."""
    texts = tuple(sorted(set(_texts_of_tests())))
    trees = [part for text in texts for part in ast.walk(ast.parse(text))]
    expressions = [part for part in trees if isinstance(part, ast.expr)]
    statements = [part for part in trees if isinstance(part, ast.stmt)]
    for text in _split(_EXPRESSIONS):
        expressions += [ast.parse(text, mode="eval").body] * 8
    for text in _split(_STATEMENTS):
        statements += ast.parse(text.replace("\\n", "\n")).body * 8
    tokens = [token for text in texts for token in _tokens_of(text)]
    return Pool(texts, tuple(expressions), tuple(statements), (*tokens, *_TOKENS * 20))


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


def _text(rng: random.Random) -> str:
    """A text of the tests, short ones more often: they take less time, and find as much."""
    return min(rng.choices(pool().texts, k=2), key=len)


def _nodes(rng: random.Random) -> str:
    """A text with one to three expressions or statements replaced by others."""
    known = pool()
    text = _text(rng)
    tree: ast.AST = ast.parse(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, others = (ast.expr, known.expressions) if rng.random() < 0.75 else (ast.stmt, known.statements)
        places = list(_places(tree, kind))
        if places:
            parent, field, number = rng.choice(places)
            new = copy.deepcopy(rng.choice(others))
            if number is None:
                setattr(parent, field, new)
            else:
                getattr(parent, field)[number] = new
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    except (ValueError, AttributeError, RecursionError):  # no text stands for such a tree
        return text


def _places(tree: ast.AST, kind: type[ast.AST]) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Where a tree holds nodes of a kind: the parent, its field, and the number in a list."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, kind):
                yield parent, field, None
            elif isinstance(value, list):
                for number, one in enumerate(value):
                    if isinstance(one, kind):
                        yield parent, field, number


def _tokens(rng: random.Random) -> str:
    """A text with tokens inserted, dropped, doubled or exchanged."""
    known = pool()
    text = _text(rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        words = _tokens_of(text)
        old, new = rng.choice(words) if words else " ", rng.choice(known.tokens)
        at = text.find(old, rng.randrange(max(1, len(text))))
        if at < 0:
            continue
        put = rng.choice(("", new, f"{new} ", old + old, f"{old}{new}", f"{old} {new}"))
        text = text[:at] + put + text[at + len(old) :]
    return text


def _characters(rng: random.Random) -> str:
    """A text with some characters replaced, or cut off."""
    text = _text(rng)
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice((_character(rng), "", "", " ", "\n")) + text[at + rng.randrange(3) :]
    return text if rng.random() < 0.8 else text[: rng.randrange(len(text) + 1)]


def _character(rng: random.Random) -> str:
    limit = rng.choice((128, 128, 0x3000, 0x110000))
    return chr(rng.randrange(limit))


def _several(rng: random.Random) -> str:
    """Texts one below the other, whose names may meet."""
    return "\n".join(rng.choice(pool().texts) for _ in range(rng.choice((2, 2, 3, 6))))


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
    return rng.choice(_NESTED)(rng.choice((2, 30, 90, 120, 300, 1200, 5000)))
