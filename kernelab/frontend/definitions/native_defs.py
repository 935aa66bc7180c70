"""Functions of native C++: `@func_native(snippet, adj_snippet, replay_snippet)` above a def without a body.

    snippet        float sq = x * x; return sq;          what a call computes, or does to arrays
    adj_snippet    adj_x += 2.0f * x * adj_ret;          adds to adj_x for each float and array of floats

An array whose elements the snippet replaces by ``out[i] = ...`` loses its adjoint there; where the adjoint
snippet does not see to that itself, the snippet is run once more over an array that clears what is stored to.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelab.data_classes import dataclass, replace
from kernelab.errors import Diagnostic, Source, Span, a_thing
from kernelab.frontend.definitions.definitions import Template
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.frame import BrokenCall, Mistake
from kernelab.frontend.meaning.meanings import Bound, Instance, Meaning, Typed
from kernelab.frontend.meaning.syntax_trees import is_none, module_of
from kernelab.lang.build import Builder
from kernelab.lang.ir import CustomRules, Function, Native, RuleName, Var
from kernelab.lang.native import Access, Snippet, SnippetLine, SnippetParam, access, mentions, plain, stores
from kernelab.lang.types import HALVES, Array, Scalar, Value, is_differentiable, scalar_of
from kernelab.lang.verify import verify


@dataclass(frozen=True, slots=True)
class Texts:
    """The arguments of `@func_native`, each text with the spans of its lines."""

    snippet: tuple[SnippetLine, ...]
    adj: tuple[SnippetLine, ...] | None = None
    replay: tuple[SnippetLine, ...] | None = None
    checked: bool = True


def texts(arguments: Mapping[str, Any], name: str, sources: Sequence[Source]) -> Texts:
    """The texts of a decorator, at their places in the sources; raises ValueError that says what is wrong."""
    unknown = arguments.keys() - {"snippet", "adj_snippet", "replay_snippet", "check"}
    if unknown or not isinstance(arguments.get("snippet"), str):
        raise ValueError("func_native takes snippet, adj_snippet, replay_snippet and check")
    for word in ("adj_snippet", "replay_snippet"):
        if not isinstance(arguments.get(word), str | None):
            raise ValueError(f"{word} is C++ text, not {a_thing(arguments[word])}")

    def lines(word: str) -> tuple[SnippetLine, ...] | None:
        text = arguments.get(word)
        return None if text is None else _located(text, f"the {word} of {name}", sources)

    snippet = lines("snippet")
    assert snippet is not None
    return Texts(snippet, lines("adj_snippet"), lines("replay_snippet"), bool(arguments.get("check", True)))


def _located(text: str, label: str, sources: Sequence[Source]) -> tuple[SnippetLine, ...]:
    """The lines of a snippet, where they stand in the text that it was written in."""
    for source in sources:
        for node in _strings(source.text):
            if node.value == text:
                lines = _lines_at(text, source, node.lineno)
                if lines is not None:
                    return lines
    own = Source(text, label)
    return tuple(
        SnippetLine(line, Span(own, number, 0, number, len(line)))
        for number, line in enumerate(text.split("\n"), 1)
    )


def _strings(text: str) -> Iterator[ast.Constant]:
    try:
        tree = module_of(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


def _lines_at(text: str, source: Source, first: int) -> tuple[SnippetLine, ...] | None:
    written, lines = source.text.split("\n"), text.split("\n")
    result = []
    for k, line in enumerate(lines):
        there = written[first - 1 + k] if first - 1 + k < len(written) else ""
        column = there.find(line) if k == 0 else 0 if there.startswith(line) else -1
        if column < 0:
            return None
        number = source.first_line + first - 1 + k
        result.append(SnippetLine(line, Span(source, number, column, number, column + len(line))))
    return tuple(result)


class NativeFunction(UserFunction):
    """A function whose body is C++: kernels call it like any other."""

    is_native = True

    def __init__(self, template: Template, texts: Texts) -> None:
        super().__init__(template)
        self.texts = texts

    def check(self) -> tuple[Diagnostic, ...]:
        """The errors in its signature and its snippets."""
        try:
            self.instantiate(self._types())
        except BrokenCall as broken:
            return broken.diagnostics
        return ()

    def _types(self) -> tuple[Bound, ...]:
        for parameter in self.signature():
            if parameter.type is None:
                hint = f"write «{parameter.name}: float», or whatever it is"
                message = f"the argument {parameter.name} of native C++ needs a type"
                raise BrokenCall((Diagnostic(message, parameter.span, "annotation", hint=hint),))
        return tuple(p.type for p in self.signature() if p.type is not None)

    def _lowered(self, bound: tuple[Bound, ...]) -> Instance:
        self._refuse_body()
        result = self._result()
        params = self._params()
        snippet = self._snippet(self.texts.snippet, self.name, params, result)
        function = self._function(snippet, params, {})
        results: Meaning | None = None if result is None else Typed(function.body.yields[0])
        return Instance(function, results)

    def _refuse_body(self) -> None:
        if self.template.ref_parameters is not None:
            hint = "return the new value, or take an array and an index"
            raise self._mistake("a function of native C++ can hand nothing back by ref", hint)
        for stmt in self.template.node.body:
            match stmt:
                case ast.Pass() | ast.Return(None) | ast.Expr(ast.Constant()):
                    pass
                case _:
                    hint = "write ... for the body: the snippet is what runs"
                    raise self._mistake("a function of native C++ has no body of its own", hint, stmt)

    def _mistake(self, message: str, hint: str, node: ast.stmt | ast.expr | None = None) -> Mistake:
        span = self.span if node is None else self.template.places(node)
        return Mistake.of(message, "native", hint, span)

    def _result(self) -> Value | None:
        returns = self.template.node.returns
        says = any(plain(line.text).partition("return")[2].strip(" ;\t") for line in self.texts.snippet)
        if returns is None or is_none(returns):
            if says:
                raise self._mistake(
                    f"the snippet of {self.name} returns a value, and its def does not say of which type",
                    f"write def {self.name}(...) -> float: ...",
                )
            return None
        type = None if self.template.is_open(returns) else self.template.type(returns)
        if not isinstance(type, Value) or scalar_of(type) in HALVES:
            message = f"{self.name} has an unsupported return type"
            raise self._mistake(message, "native C++ returns a number, a vector or a matrix", returns)
        if not says:
            raise self._mistake(f"the snippet of {self.name} returns nothing", "add a return statement to it")
        return type

    def _params(self) -> dict[str, Value | Array]:
        params: dict[str, Value | Array] = {}
        for parameter in self.signature():
            type = parameter.type
            if not isinstance(type, Value | Array) or _scalar(type) in HALVES:
                message = f"native C++ cannot take {parameter.name}: {type}"
                hint = "pass numbers, vectors, matrices and arrays of them, not of 16 bits"
                raise Mistake.of(message, "native", hint, parameter.span)
            params[parameter.name] = type
        return params

    # ---- snippets as functions of the IR

    def _snippet(
        self,
        lines: tuple[SnippetLine, ...],
        name: str,
        params: Mapping[str, Value | Array],
        result: Value | None = None,
        sums: Mapping[str, Value] | None = None,
        accesses: Mapping[str, Access] | None = None,
    ) -> Snippet:
        """C++ with those of the parameters that it names."""
        text = "\n".join(line.text for line in lines)
        named = {param: type for param, type in params.items() if mentions(text, param)}
        how = {
            param: access(text, param) if isinstance(type, Array) else "value"
            for param, type in named.items()
        }
        how |= {param: stated for param, stated in (accesses or {}).items() if param in named}
        parameters = [SnippetParam(param, type, how[param]) for param, type in named.items()]
        parameters += [SnippetParam(param, type, "sum") for param, type in (sums or {}).items()]
        return Snippet(name, lines, tuple(parameters), result)

    def _function(
        self,
        snippet: Snippet,
        params: Mapping[str, Value | Array],
        sums: Mapping[str, Value],
        then: Snippet | None = None,
    ) -> Function:
        """The function of the IR that runs a snippet, and after it one that clears adjoints."""
        vars = {name: Var(type, name, self.span) for name, type in params.items()}
        builder = Builder()
        with builder.at(self.span):
            types = ([] if snippet.result is None else [snippet.result]) + list(sums.values())
            outs = tuple(Var(type, "", self.span) for type in types)
            args = tuple(vars[param.name] for param in snippet.arguments)
            builder.emit(Native(outs, snippet, args, self.span))
            if then is not None:
                names = [f"adj_{p.name}" if p.access == "clear" else p.name for p in then.arguments]
                builder.emit(Native((), then, tuple(vars[name] for name in names), self.span))
        return verify(Function(snippet.name, tuple(vars.values()), builder.close(*outs), (), self.span))

    # ---- its derivative

    def _with_rules(self, instance: Instance, bound: tuple[Bound, ...]) -> Instance:
        rules = self.rules
        others = CustomRules(instance.function) if rules is None else rules.lower(self, bound, instance)
        grad = others.grad if self.texts.adj is None else self._grad()
        replay = others.replay if self.texts.replay is None else self._replay()
        own: set[RuleName] = {"grad"} if self.texts.adj is not None else set()
        own |= {"replay"} if self.texts.replay is not None else set()
        checked = others.checked | own if self.texts.checked else others.checked - own
        custom = CustomRules(instance.function, grad, replay, others.jvp, checked)
        return replace(instance, function=replace(instance.function, custom=custom))

    def _grad(self) -> Function:
        assert self.texts.adj is not None
        params = self._params()
        floats = {name: type for name, type in params.items() if is_differentiable(type)}
        sums = {f"adj_{name}": type for name, type in floats.items() if not isinstance(type, Array)}
        result = self._result()
        bars: dict[str, Value | Array] = {} if result is None else {"adj_ret": result}
        bars |= {f"adj_{name}": type for name, type in floats.items() if isinstance(type, Array)}
        adjoint = self._snippet(self.texts.adj, f"adj_{self.name}", params | bars, None, sums)
        for param in adjoint.arguments:
            if param.name in params and param.access not in ("value", "read"):
                message = f"the adj_snippet of {self.name} changes {param.name}"
                raise self._mistake(message, f"add to adj_{param.name}: the backward pass changes no values")
        forward = "\n".join(line.text for line in self.texts.snippet)
        for name in (name for name, type in floats.items() if isinstance(type, Array)):
            if access(forward, name) == "read" and stores(adjoint.text, f"adj_{name}"):
                message = f"the adj_snippet of {self.name} replaces elements of adj_{name}"
                hint = f"write adj_{name}[...] += ...: {name} may contribute elsewhere too"
                raise self._mistake(message, hint)
        then = self._clearing(floats, adjoint.text)
        return self._function(adjoint, params | bars, sums, then)

    def _clearing(self, floats: Mapping[str, Value | Array], adj: str) -> Snippet | None:
        """The snippet once more, setting to 0 the adjoints of what it stores to; None if there is nothing."""
        text = "\n".join(line.text for line in self.texts.snippet)
        arrays = {name: type for name, type in self._params().items() if isinstance(type, Array)}
        replaced = [
            name
            for name in arrays
            if name in floats and stores(text, name) and not stores(adj, f"adj_{name}")
        ]
        if not replaced:
            return None
        how: dict[str, Access] = {}
        for name in arrays:
            does = access(text, name)
            if does == "write":
                message = f"{self.name} stores to {replaced[0]}, and its adj_snippet leaves adj_{replaced[0]}"
                hint = f"say adj_{replaced[0]}[...] = 0 there, once what it gives has been added elsewhere"
                raise self._mistake(message, hint)
            if does != "read":
                how[name] = "clear" if name in replaced else "absent"
        return self._snippet(
            self.texts.snippet, f"{self.name}_cleared", self._params(), self._result(), None, how
        )

    def _replay(self) -> Function | None:
        """The replay function, which returns the result again; None where there is no result."""
        assert self.texts.replay is not None
        result = self._result()
        if result is None:
            return None
        snippet = self._snippet(self.texts.replay, f"replay_{self.name}", self._params(), result)
        for param in snippet.arguments:
            if param.access not in ("value", "read"):
                message = f"the replay_snippet of {self.name} changes {param.name}"
                raise self._mistake(message, "only read it here: the backward pass keeps what is there")
        return self._function(snippet, self._params(), {})


def _scalar(type: Value | Array) -> Scalar:
    return scalar_of(type.elem if isinstance(type, Array) else type)
