"""Finds the function that a decorator `@func_grad(f)`, `@func_replay(f)` or `@func_jvp(f)` names."""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelab.errors import Diagnostic, Related
from kernelab.frontend.definitions.custom_derivatives import KINDS, Rule, RuleKind, attach
from kernelab.frontend.definitions.definitions import template
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.frame import Mistake, evaluated
from kernelab.frontend.meaning.meanings import FunctionRef, Meaning, Poison, describe
from kernelab.frontend.meaning.name_lookup import Scope, Unknown, meaning_of, named_in
from kernelab.frontend.meaning.source import Places, source_of

Collect = Callable[[Sequence[Diagnostic]], None]


def decorator(node: ast.FunctionDef) -> ast.expr | None:
    """The decorator that makes a def a rule, None if it is none."""
    return next((part for part in node.decorator_list if _word(part) in KINDS), None)


def _word(node: ast.expr) -> str:
    match node.func if isinstance(node, ast.Call) else node:
        case ast.Name(word) | ast.Attribute(attr=word):
            return word
        case _:
            return ""


def named(node: ast.FunctionDef) -> set[str]:
    """The name of the function that a rule belongs to, if it is a plain name."""
    match decorator(node):
        case ast.Call(args=[ast.Name(name), *_]):
            return {name}
        case _:
            return set()


def attach_all(
    nodes: Sequence[ast.FunctionDef],
    scope: Scope,
    places: Places,
    functions: Mapping[str, UserFunction],
    collect: Collect,
) -> list[Diagnostic]:
    """Attach the rules of a cell to the functions that they name; notes.

    Functions of the cell are checked with it, those of other cells here.  A function of another cell keeps
    what it had if a rule is wrong.
    """
    own, taken = set(functions.values()), dict[tuple[UserFunction, str], Rule]()
    before: dict[UserFunction, Any] = {}
    for node in nodes:
        try:
            rule, function = _resolved(node, scope, places)
        except Mistake as mistake:
            collect([mistake.diagnostic])
            continue
        if (function, rule.kind) in taken:
            first = Related("the first one is here", taken[function, rule.kind].span)
            message = f"{function.name} has two rules of the kind {rule.kind}"
            collect([Diagnostic(message, rule.span, "name", hint="remove one of them", related=(first,))])
            continue
        taken[function, rule.kind] = rule
        before.setdefault(function, function.rules)
        attach(rule, function)
    notes: list[Diagnostic] = []
    for function in before.keys() - own:
        errors = function.check()
        if errors:
            collect(errors)
            function.set_rules(before[function])
        else:
            notes += [
                *function.notes,
                *(_late(rule) for (owner, _), rule in taken.items() if owner is function),
            ]
    return notes


def _late(rule: Rule) -> Diagnostic:
    return Diagnostic(
        f"kernels that were compiled before do without {rule.name}",
        rule.span,
        "late",
        "information",
        hint="run their cells again",
    )


def rule_of(node: ast.FunctionDef, scope: Scope, places: Places, checked: bool = True) -> Rule:
    """The rule that a decorated def is; raises Mistake where the decorator says too much."""
    found = decorator(node)
    assert found is not None
    word: RuleKind = next(kind for kind in KINDS if kind == _word(found))
    return Rule(word, template(node, places, scope, {}), checked)


def _resolved(node: ast.FunctionDef, scope: Scope, places: Places) -> tuple[Rule, UserFunction]:
    found = decorator(node)
    assert found is not None
    word = _word(found)
    if not isinstance(found, ast.Call) or len(found.args) != 1 or len(node.decorator_list) > 1:
        hint = f"write @{word}(f) alone above the def"
        raise Mistake(
            Diagnostic(f"{word} takes the function that it is for", places(found), "name", hint=hint)
        )
    target = _target(found.args[0], scope, places)
    return rule_of(node, scope, places, _checked(found, places)), target


def _target(node: ast.expr, scope: Scope, places: Places) -> UserFunction:
    match _meaning(node, scope, places):
        case FunctionRef(UserFunction() as function):
            return function
        case meaning:
            what = "something else" if meaning is None or meaning == Poison() else describe(meaning)
            message = f"{places.text(node)} is {what}, not a function for kernels"
            hint = "custom derivatives belong to a def with @func that kernels call"
            raise Mistake(Diagnostic(message, places(node), "type", hint=hint))


def _meaning(node: ast.expr, scope: Scope, places: Places) -> Meaning | None:
    if isinstance(node, ast.Name):
        try:
            return scope.lookup(node.id)
        except Unknown as unknown:
            hint = unknown.hint or "define it in this cell, or run its cell first"
            raise Mistake(Diagnostic(unknown.message, places(node), "name", hint=hint)) from None
    return meaning_of(places.text(node), evaluated(node, places, {**scope.namespace, **scope.assigned}))


def _checked(call: ast.Call, places: Places) -> bool:
    checked = True
    for word in call.keywords:
        match word:
            case ast.keyword("check", ast.Constant(bool() as value)):
                checked = value
            case _:
                message = f"{_word(call)} has no option {ast.unparse(word)}"
                hint = f"{_word(call)} takes check=True or check=False"
                raise Mistake(Diagnostic(message, places(word), "value", hint=hint))
    return checked


def rule_from(function: Callable[..., Any], namespace: Mapping[str, Any], checked: bool) -> Rule:
    """The rule that a decorated Python function of a file is; raises KernelSyntaxError without its text."""
    source, tree = source_of(function)
    node = next(stmt for stmt in tree.body if isinstance(stmt, ast.FunctionDef))
    return rule_of(node, Scope({}, {}, named_in(tree, namespace), namespace), Places(source), checked)
