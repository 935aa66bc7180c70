"""The verifier: what breaks a rule of the IR is refused, so that a pass which does cannot go unnoticed."""

import pytest

import kernelab.builtins  # noqa: F401 (fills the table of operations)
from kernelab.lang import ops
from kernelab.lang.build import FALSE, TRUE, Builder, constant, integer
from kernelab.lang.ir import (
    Alloc,
    Append,
    Assert,
    Atom,
    Block,
    For,
    Function,
    If,
    Let,
    Load,
    Restore,
    Save,
    Stack,
    Stmt,
    Store,
    Var,
    While,
)
from kernelab.lang.types import Array, Type, Vec, bool_, float32, float64, int32
from kernelab.lang.verify import InvalidIR, verify

X = Var(Array(float32, 1), "x")
V = Var(Array(Vec(float32, 3), 1), "v")
A = Var(float32, "a")
ONE = constant(1.0, float32)
(SIN,) = (op for op in ops.overloads("sin") if op.infer([float32]))


def function(*stmts: Stmt, yields: tuple[Atom, ...] = ()) -> Function:
    return Function("f", (X, V, A), Block(stmts, yields))


def var(type: Type = float32) -> Var:
    return Var(type, "t")


def loop(inits: tuple[Atom, ...], yields: tuple[Atom, ...], stop: int | None = None) -> For:
    carries = tuple(var(atom.type) for atom in inits)
    outs = tuple(var(atom.type) for atom in inits)
    return For(outs, var(int32), integer(3), carries, inits, Block((), yields), stop=stop)


STACK, OUT = Stack("saved"), var()
SAVED = Save(STACK, (A,))

WRONG: dict[str, list[Stmt]] = {
    "out of scope": [Let(var(), SIN, (var(),))],
    "assigned twice": [Let(OUT, SIN, (A,)), Let(OUT, SIN, (A,))],
    "sin gives float32, not float64": [Let(var(float64), SIN, (A,))],
    "is not an array": [Load(var(), A, (integer(0),))],
    "wrong number of indices": [Load(var(), X, ())],
    "index is not an integer": [Load(var(), X, (ONE,))],
    "element is float32, not int32": [Store(X, (integer(0),), integer(1))],
    "element is vec3, not float32": [Store(V, (integer(0),), ONE)],
    "held value of another type": [Load(var(), X, (integer(0),), held=integer(0))],
    "a local array of another shape": [Alloc(var(Array(float32, 2)), (3,))],
    "condition is not a bool": [If((), A, Block(()), Block(()))],
    "else yields other types": [If((var(),), TRUE, Block((), (A,)), Block(()))],
    "body yields other types": [loop((A,), ())],
    "stop is not a bool": [loop((A,), (A,), stop=0)],
    "assertion is not a bool": [Assert(A, "assertion", "")],
    "append of another type": [Append(X, integer(1))],
    "another save on a stack": [SAVED, SAVED],
    "restored types differ": [SAVED, Restore(STACK, (var(int32),))],
}


@pytest.mark.parametrize("reason", WRONG)
def test_a_broken_rule_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(InvalidIR, match=reason):
        verify(function(*WRONG[reason]))


def test_what_a_stack_gives_back_was_saved_before() -> None:
    with pytest.raises(InvalidIR, match="restored types differ"):
        verify(function(Restore(STACK, (var(),)), SAVED))


def test_a_value_of_a_region_is_not_seen_behind_it() -> None:
    inner = var()
    branch = If((), TRUE, Block((Let(inner, SIN, (A,)),)), Block(()))
    with pytest.raises(InvalidIR, match="out of scope"):
        verify(function(branch, yields=(inner,)))


def test_what_a_loop_carries_is_not_seen_behind_it() -> None:
    carried, out = var(bool_), var(bool_)
    endless = While((out,), (carried,), (FALSE,), 0, Block((), (TRUE,)))
    verify(function(endless, yields=(out,)))
    with pytest.raises(InvalidIR, match="out of scope"):
        verify(function(While((var(bool_),), (carried,), (FALSE,), 0, Block((), (TRUE,))), yields=(carried,)))


def test_what_obeys_the_rules_is_given_back() -> None:
    builder = Builder()
    first = builder.load(X, [integer(0)])
    builder.store(X, [integer(1)], builder.apply("sin", first))
    valid = Function("f", (X,), builder.close())
    assert verify(valid) is valid
