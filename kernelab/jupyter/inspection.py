"""What a `%%kernel` cell says about itself: completion, Shift-Tab, and the text under the pointer.

Completion knows options, words of the language, kernels and functions.  Shift-Tab and the pointer of
JupyterLab get the same answer for a place: the type of a name, an operation and its derivative, the adjoint
of a line.  Knows the language and the kernels of a text.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.utils.tokenutil import token_at_cursor

from kernelab.builtins.language_words import ways_of
from kernelab.builtins.table import signature
from kernelab.errors import KernelError, Source
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.meanings import BuiltinRef, TypeRef
from kernelab.frontend.meaning.name_lookup import PREFIXES, language, meaning_of
from kernelab.frontend.meaning.trial import trial
from kernelab.jupyter.typed_kernels import CellText, adjoint_lines, typed
from kernelab.lang import ops
from kernelab.lang.ir import Let, defined, walk
from kernelab.lang.operators import SYMBOLS
from kernelab.lang.ops import KindPattern, MatPattern, Op, Pattern, ScalarPattern, Undefined, VecPattern, Zero
from kernelab.lang.types import Vec, spelled, type_named
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.loading import short
from kernelab.runtime.kernel.texts import compile_source
from kernelab.runtime.ops.function_calls import stated_kernel

# ------------------------------------------------------------------------------------------------ hover text


Sections = list[tuple[str, str]]
"""Titles and texts, as IPython's inspector shows them."""


def hover(request: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `hover`: Markdown, and the stretch of the cell that it speaks of; or nothing."""
    cell = CellText(request["text"])
    if cell.magic_line is None:
        return {}
    line, column = request["position"][0] + 1, cell.column(request["position"])
    word = _word_at(cell, line, column)
    blocks = list(_told(cell, line, word[0], names))
    if not blocks:
        return {}
    start, end = cell.position(line, word[1]), cell.position(line, word[2])
    return {"start": start, "end": end, "markdown": "\n\n".join(blocks)}


def _word_at(cell: CellText, line: int, column: int) -> tuple[str, int, int]:
    """The name or the sign at a place and its columns; all of the line's text where there is none."""
    text = cell.lines[line - 1] if line <= len(cell.lines) else ""
    for match in (*re.finditer(r"[^\W\d]\w*", text), *re.finditer(SIGNS, text)):
        if match.start() <= column <= match.end():
            return match[0], match.start(), match.end()
    return "", len(text) - len(text.lstrip()), len(text)


SIGNS = r"\*\*|//|<<|>>|[<>=!]=|[-+*/%@&|^<>]"
"""The signs of operations, as a regular expression."""


def _told(
    cell: CellText, line: int, word: str, names: Mapping[str, Any], is_own: bool = False
) -> Iterator[str]:
    """Blocks of Markdown; none for a name of the notebook that has an answer of its own (``is_own``)."""
    with trial():
        result, kernels = typed(cell, names)
        above = [one.span for one in result.definitions.values() if one.span.line <= line]
        owner = max(above, key=lambda span: span.line, default=None)
        # A line of a function is a part of the adjoints of all that call it.
        kernels = [kernel for kernel in kernels if kernel.span == owner] or kernels
        kinds = _kinds(kernels, line)
        if word in kinds:
            yield f"```python\n{word}: {kinds[word]}\n```"
            if isinstance(value := names.get(word), array):
                yield f"`{word}` of the notebook has the shape {value.shape}."
        elif is_own:
            return
        elif word:
            yield from _of_word(word, names, _used(kernels, line, word))
        lines = adjoint_lines(kernels, line)
    if lines:
        text = "\n".join(lines)
        yield f"adjoint of line {line}\n```python\n{text}\n```"


def _kinds(kernels: Sequence[Kernel], line: int) -> dict[str, str]:
    """The types of the names of the kernel that a line belongs to, as they are at the line."""
    kernel = next((one for one in reversed(kernels) if one.span.line <= line), None)
    if kernel is None:
        return {}
    function = kernel.definition.function
    kinds = {var.hint: f"{var.type}, the number of the thread" for var in function.threads}
    for var in defined(function.body):
        if var.hint and (var.hint not in kinds or var.span.line <= line):
            kinds[var.hint] = str(var.type)
    return kinds | {formal.name: spelled(formal.type) for formal in kernel.definition.signature}


def _of_word(word: str, names: Mapping[str, Any], used: tuple[Op, ...]) -> Iterator[str]:
    value = names.get(word)
    meaning = None if value is None else meaning_of(word, value)
    try:
        sections = None if value is None else described(value)
    except KernelError:
        sections = None  # a decorated def with mistakes, which are told where it is used
    if sections:
        yield "\n\n".join(f"{title}\n```python\n{text}\n```" for title, text in sections)
    elif text := operation_in_markdown(_operation_of(word), used):
        yield text
    elif meaning is not None and not isinstance(meaning, BuiltinRef):
        yield f"`{word}` of the notebook: {short(value)}"


def _operation_of(word: str) -> str:
    """The operation that a word of the language stands for: a type converts or constructs; or nothing."""
    match language().get(word):
        case BuiltinRef():
            return word
        case TypeRef(type=type):
            return str(type)
        case _:
            return ""


def _used(kernels: Sequence[Kernel], line: int, word: str) -> tuple[Op, ...]:
    """What of the overloads of a word or a sign the kernels have at a line."""
    names = [_operation_of(word)] if word.isidentifier() else [k for k, sign in _SIGNS if sign == word]
    lets = (stmt for kernel in kernels for stmt in walk(kernel.definition.function.body))
    here = (stmt for stmt in lets if isinstance(stmt, Let) and stmt.span.line == line)
    return tuple(dict.fromkeys(stmt.op for stmt in here if stmt.op.name in names))


_SIGNS = (*SYMBOLS.items(), ("neg", "-"))


def operation_in_markdown(word: str, used: tuple[Op, ...] = ()) -> str:
    """Signatures, documentation and derivative of a word of the language as Markdown; "" for others.

    Of all overloads or those that are used; equal docs are said once.
    """
    ways = [(signature(op), op.doc) for op in used or ops.overloads(word)]
    written: dict[str, list[str]] = {}
    for head, said in ways or ways_of(word):
        written.setdefault(said, []).append(head)
    blocks = [f"{_code(heads)}\n{said}" for said, heads in written.items()]
    if ways and (rule := derivative(word, used)):
        told, *lines = rule.splitlines()
        blocks.append(f"{told}\n{_code([line.strip() for line in lines])}" if lines else told)
    return "\n\n".join(blocks)


def _code(lines: Sequence[str]) -> str:
    return "\n".join(("```python", *lines, "```"))


def described(shown: object) -> Sections | None:
    """Signature, docstring, how to launch, place; raises KernelError for a decorated kernel with mistakes."""
    match shown:
        case Kernel():
            params = shown.definition.function.params
            head = ", ".join(f"{param.hint}: {spelled(param.type)}" for param in params)
            names = ", ".join(param.hint for param in params)
            use = f"{shown.name}[n]({names})\nkl.launch({shown.name}, dim=n, inputs=[{names}])"
            sections = [("Signature", f"{shown.name}({head})"), ("Docstring", shown.doc), ("Launch", use)]
        case UserFunction():
            head = ast.unparse(shown.template.node.args)
            sections = [("Signature", f"{shown.name}({head})"), ("Docstring", shown.template.doc)]
        case _:
            return None
    return [(title, text) for title, text in (*sections, ("Defined in", str(shown.span))) if text]


# ------------------------------------------------------------------------------------------------ derivatives


@cache
def derivative(word: str, used: tuple[Op, ...] = ()) -> str:
    """The rule of an operation for floats, or for its first arguments that a kernel may have; or why none."""
    first, *_ = overloads = used or ops.overloads(word)
    if isinstance(first.derivative, Undefined):
        return f"It has no derivative: {first.derivative.reason}."
    if all(isinstance(op.derivative, Zero) for op in overloads):
        return "Its derivative is zero."
    return next((rule for op in overloads if (rule := _rule(op))), "")


def _argument(pattern: Pattern) -> str:
    """A type that fits a pattern, with floats where it may have them."""
    match pattern:
        case ScalarPattern(kinds=kinds):
            return "float" if "float" in kinds else kinds[0]
        case VecPattern(n=n):
            return f"vec{n if isinstance(n, int) else 3}"
        case MatPattern(n=n, m=m):
            return f"mat{n if isinstance(n, int) else 3}{m if isinstance(m, int) else 3}"
        case KindPattern(kind=kind):
            return kind.__name__.lower()
        case _:
            return str(pattern)


def _rule(op: Op) -> str:
    """What the cotangent of the result adds to those of the operands, as the adjoint of a call has it."""
    kinds = {param.name: _argument(param.pattern) for param in op.params}
    head = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    text = f"def rule({head}):\n    return {op.name}({', '.join(kinds)})\n"
    function = compile_source(Source(text, op.name)).definitions.get("rule")
    kernel = None if function is None else stated_kernel(function)
    if not isinstance(kernel, Kernel):
        return ""
    lines = [line.text.strip() for line in kernel.textbook().adjoint.lines if not line.goes_on]
    turn = next(k for k, line in enumerate(lines) if line.startswith("# backwards"))
    opening = next(k for k, line in enumerate(lines) if line.startswith("# line"))
    values = [line for line in lines[opening + 1 : turn] if not line.startswith("result")]
    result = values[-1].partition(" ")[0] if values else "v1"
    # Cotangents begin at 0; that of the result comes from an array.
    begins = re.compile(rf"\w+_bar(\[0\])? = |{result}_bar \+= ")
    # Those of the arguments are the elements of arrays; v1_bar[0] is a component.
    element = re.compile(rf"\b({'|'.join(kinds)}|result)_bar\[0\]")
    swept = [element.sub(r"\1_bar", line) for line in lines[turn + 1 :] if not begins.match(line)]
    # Several values are those of the operations that it is composed of.
    shown = [*values, *swept] if len(values) > 1 else swept
    if len(shown) > MOST_LINES:
        return "Its derivative is that of the operations that it is composed of."
    told = f"Derivative, with the cotangent of the result {result} in {result}_bar:"
    return "\n".join([told, *(f"    {line.replace('result_bar', f'{result}_bar')}" for line in shown)])


MOST_LINES = 8
"""The longest rule that is shown."""


# ------------------------------------------------------------------------------------------------ completion


ARRAY_ATTRIBUTES = ("ndim", "shape", "size")

Offer = tuple[str, str]
"""A word and what kind of thing it is."""


def matcher(options: Sequence[str], choices: dict[str, Sequence[str]], names: Mapping[str, Any]) -> Any:
    """IPython's matcher for our cells; `choices` are the words that may follow an option.

    `names` are those of the notebook, where structs may be.
    """

    def complete(context: CompletionContext) -> SimpleMatcherResult:
        magic_line = CellText(context.full_text).magic_line
        if magic_line is None:
            return _offer([], "", suppress=False)
        before = context.text_until_cursor
        if context.cursor_line == magic_line:
            token = before.rpartition(" ")[2]
            previous = before.split()[-1 - bool(token)]
            offers = [(option, "option") for option in options if option not in before.split()[:-1]]
            if previous in choices:
                offers = [(choice, "value") for choice in choices[previous]]
            return _offer(offers, token, suppress=True)
        # After a dot these are all that there are; other words may be names of the notebook.
        offers = _in_body(context.full_text, before, names)
        return _offer(offers, context.token, suppress="." in context.token)

    return context_matcher(identifier="kernelab")(complete)


def _offer(offers: Sequence[Offer], token: str, *, suppress: bool) -> SimpleMatcherResult:
    completions = [SimpleCompletion(text=word, type=kind) for word, kind in offers if word.startswith(token)]
    return SimpleMatcherResult(completions=completions, suppress=suppress and bool(completions))


def _in_body(text: str, before: str, names: Mapping[str, Any]) -> list[Offer]:
    dotted = re.search(r"(\w+)(\[[^\[\]]*\])?\.\w*$", before)
    if dotted is None:
        return list(_words())
    name, index = dotted.groups()
    if name in PREFIXES:
        return [(f"{name}.{word}", kind) for word, kind in _words()]
    kind, element = _type_of(name, text)
    if element and index is None:
        return [(f"{name}.{attribute}", "property") for attribute in ARRAY_ATTRIBUTES]
    before_dot = name if index is None else ""  # a bracket begins a token of its own
    return [(f"{before_dot}.{field}", "property") for field in _fields(element or kind, text, names)]


def _type_of(name: str, text: str) -> tuple[str, str]:
    """The type that an annotation or an assignment states for a name, and that of an array's elements."""
    kind, element = _annotation(name, text)
    assigned = None if kind else re.search(rf"\b{name}\s*=\s*(?:\w+\.)?(\w+)([\[(])", text)
    if assigned is None:
        return kind, element
    maker, bracket = assigned.groups()
    return (maker if bracket == "(" else _annotation(maker, text)[1]), ""


def _annotation(name: str, text: str) -> tuple[str, str]:
    stated = re.search(rf"\b{name}\s*:\s*(?:\w+\.)?(\w+)(?:\[(?:\w+\.)?(\w+))?", text)
    kind, element = stated.groups("") if stated else ("", "")
    return kind, element if kind.startswith("array") else ""


def _fields(type: str, text: str, names: Mapping[str, Any]) -> list[str]:
    """The fields of a struct of the cell or of the notebook, or the components of a vector."""
    body = re.search(rf"^class {type}\b[^\n]*\n((?:[ \t]+[^\n]*\n|[ \t]*\n)*)", text, re.MULTILINE)
    if type and body is not None:
        return re.findall(r"^[ \t]+(\w+)[ \t]*:", body[1], re.MULTILINE)
    found = getattr(names.get(type), "__kernelab_struct__", None)
    if found is not None:
        return [field.name for field in found.fields]
    known = type_named(type)
    return list("xyzw"[: known.n]) if isinstance(known, Vec) and known.n <= 4 else []


def _words() -> Iterator[Offer]:
    for word, meaning in language().items():
        yield word, "class" if isinstance(meaning, TypeRef) else "function"


# ------------------------------------------------------------------------------------------------ inspection


Reply = dict[str, Any]


class Inspector:
    """Answers `inspect_request` in place of an ipykernel's own method, until it is removed."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.original = kernel.do_inspect

    def install(self) -> None:
        self.kernel.do_inspect = self

    def remove(self) -> None:
        if self.kernel.do_inspect is self:
            self.kernel.do_inspect = self.original

    def __call__(self, code: str, cursor_pos: int, *rest: Any, **named: Any) -> Any:
        reply = self.original(code, cursor_pos, *rest, **named)
        if CellText(code).magic_line is None:
            return reply
        answer = _later if inspect.isawaitable(reply) else _answer
        return answer(reply, code, cursor_pos, self.kernel.shell.user_ns)


async def _later(reply: Any, code: str, cursor_pos: int, names: Mapping[str, Any]) -> Reply:
    return _answer(await reply, code, cursor_pos, names)


def _answer(reply: Reply, code: str, cursor_pos: int, names: Mapping[str, Any]) -> Reply:
    """What the pointer is told at the cursor; the notebook's answer to a name of its own, or to the magic.

    Where no word or sign stands at the cursor, the call speaks whose arguments are written there.
    """
    cell, before = CellText(code), code[:cursor_pos].split("\n")
    line, column = len(before), len(before[-1])
    word = _word_at(cell, line, column)[0] or token_at_cursor(code, cursor_pos).rpartition(".")[2]
    is_own = bool(reply.get("found")) and word in names and not _operation_of(word)
    told = "" if cell.magic_line == line - 1 else "\n\n".join(_told(cell, line, word, names, is_own))
    if not told:
        return reply
    plain = "\n".join(text for text in told.split("\n") if not text.startswith("```"))
    data = {"text/plain": plain, "text/markdown": told}
    return {"status": "ok", "found": True, "data": data, "metadata": {}}


def explain(data: Any, info: Any = None) -> Sections | None:
    """The text of ``name?`` and Shift-Tab for a kernel or a function for kernels; None for all else.

    IPython's hook for the text of its inspector, which gets the object itself before IPython 8.22.
    """
    if getattr(data, "detail_level", 0) > 0:
        return None
    try:
        return described(getattr(data, "obj", data))
    except KernelError:
        return None


def explain_in_html(data: Any, info: Any = None) -> Sections | None:
    """The same as HTML."""
    sections = explain(data)
    return sections and [(title, f"<pre>{escape(text)}</pre>") for title, text in sections]
