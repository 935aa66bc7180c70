"""Faults of the kind that differentiation and tapes invite, each as one change of the package's text.

`old` stands exactly once in the Python files of `folder`; with `new` in its place something is wrong, in
silence or not.  `tests` are the parts of the suite that a person would run after changing that folder.
"""

from dataclasses import dataclass

CONTRACT = "tests/contract/test_"
AGREE = "test_meaning_adjoint_tangent_differences_and_unrolled_loops_agree"
PROGRAMS = f"tests/test_random_programs.py::{AGREE}"
PROMISES = ("control_flow", "local_values", "in_place", "atomics", "masked_branches")
KERNELS = (*(f"{CONTRACT}{promise}.py" for promise in PROMISES), PROGRAMS)
SECOND = (f"{CONTRACT}second_order.py", "tests/passes/test_second_order.py")
TAPES = ("tests/test_random_tapes.py", "tests/autodiff")
RULES = (f"{CONTRACT}conventions.py", "tests/builtins/test_table.py", PROGRAMS)


@dataclass(frozen=True, slots=True)
class Fault:
    """One change that is wrong, and who should notice."""

    name: str
    folder: str
    old: str
    new: str
    tests: tuple[str, ...] = KERNELS


PASSES, AUTODIFF, RUNTIME, BUILTINS, LANG = (
    f"kernelab/{name}" for name in ("passes", "autodiff", "runtime", "builtins", "lang")
)

VJP = (
    Fault(
        "the adjoint of an element that a store overwrote is not cleared",
        PASSES,
        "self.builder.store(self.bars[array], place, zero(share.type))",
        "pass",
    ),
    Fault(
        "the reversed loop runs forwards",
        PASSES,
        "carries, inits, copied, stmt.span, True)",
        "carries, inits, copied, stmt.span, False)",
    ),
    Fault(
        "what only the else branch adds to a value from outside is lost",
        PASSES,
        "for own in (then_own, orelse_own))]",
        "for own in (then_own,))]",
    ),
    Fault(
        "the value that a carry starts with gets no cotangent",
        PASSES,
        "self.accumulate(cotangents, stmt.inits[i], Expr(self.builder, bar), handed_on=True)",
        "pass",
    ),
    Fault(
        "a loop forgets what a value from outside had before",
        PASSES,
        "(cotangents.get(v, zero(wide(type_of(v)))) for v in grown)",
        "(zero(wide(type_of(v))) for v in grown)",
    ),
    Fault(
        "a second use of a value replaces the cotangent of the first",
        PASSES,
        'cotangents[target] = self.builder.apply("add", before, share, hint=hint)',
        "cotangents[target] = share",
    ),
    Fault(
        "a second read of a local array's element replaces its adjoint",
        PASSES,
        'self.builder.store(bar, indices, self.builder.apply("add", self.builder.load(bar, indices), g))',
        "self.builder.store(bar, indices, g)",
    ),
    Fault(
        "a loop that left early is swept over its whole range",
        PASSES,
        "if isinstance(stmt, ir.For) and stmt.stop is None:\n            return value_of(stmt.count, env)",
        "if isinstance(stmt, ir.For):\n            return value_of(stmt.count, env)",
    ),
    Fault(
        "the old value of an atomic has no cotangent",
        PASSES,
        "before left: its adjoint runs after this one.\n"
        "                    self.add_to(self.bars[array], [value_of(i, env) for i in indices], g)",
        "before left: its adjoint runs after this one.\n                    pass",
    ),
    Fault(
        "the winner of a maximum does not take the cotangent away",
        PASSES,
        "b.store(self.bars[stmt.array], indices, zero(share.type))",
        "pass",
    ),
    Fault(
        "the adjoint runs the threads in the order of the primal",
        PASSES,
        "not primal.descending",
        "primal.descending",
    ),
    Fault(
        "the cotangent of a number that is a parameter is not given out",
        PASSES,
        "self.add_to(self.bars[param], [integer(0)], self.cotangents[param])",
        "pass",
        (PROGRAMS, "tests/passes/test_vjp.py"),
    ),
    Fault(
        "the factors of a masked product are exchanged",
        PASSES,
        "return scaled(g, b, True), scaled(g, a, True)",
        "return scaled(g, a, True), scaled(g, b, True)",
    ),
    Fault(
        "the transposes of a product are exchanged",
        PASSES,
        "share in (left(g, *xs), right(g, *xs)))",
        "share in (right(g, *xs), left(g, *xs)))",
    ),
    Fault(
        "what follows a quotient is multiplied like any other",
        PASSES,
        "return cut | unbounded(function, has_grad, memories)",
        "return cut",
        ("tests/contract/test_masked_branches.py",),
    ),
    Fault(
        "products of vectors with a masked cotangent stay whole",
        PASSES,
        "return masked(function) & products if products else frozenset()",
        "return frozenset()",
        ("tests/contract/test_masked_branches.py",),
    ),
    Fault(
        "a masked cotangent is multiplied like any other",
        PASSES,
        "stmt.out in self.masked)",
        "False)",
    ),
    Fault(
        "one residual too few is kept",
        PASSES,
        "if each.array in needed or each in used)",
        "if each.array in needed or each in used)[1:]",
    ),
)
STORAGE = (
    Fault(
        "a checkpoint is taken one iteration late",
        PASSES,
        'b.apply("add", b.apply("mul", integer(2), segment), integer(1))',
        'b.apply("add", b.apply("mul", integer(2), segment), integer(2))',
        (PROGRAMS, f"{CONTRACT}loop_storage.py"),
    ),
    Fault(
        "the last stretch of a loop is swept in full",
        PASSES,
        'length = b.apply("min", self.between(segment), rest, hint="length")',
        "length = self.between(segment)",
        (PROGRAMS, f"{CONTRACT}loop_storage.py"),
    ),
    Fault(
        "the index of a stretch starts at zero",
        PASSES,
        'number = number if first is None else b.apply("add", first, number)',
        "number = number",
        (PROGRAMS, f"{CONTRACT}loop_storage.py"),
    ),
    Fault(
        "a counter is taken as it is an iteration later",
        PASSES,
        'builder.apply("mul", total, passed)',
        'builder.apply("add", total, builder.apply("mul", total, passed))',
        (*KERNELS, f"{CONTRACT}loop_storage.py"),
    ),
    Fault(
        "a counter that goes down counts up",
        PASSES,
        'builder.apply("add" if term.sign > 0 else "sub", total, term.amount)',
        'builder.apply("add", total, term.amount)',
        (*KERNELS, f"{CONTRACT}loop_storage.py"),
    ),
)
JVP = (
    Fault(
        "what is appended to a residual has no tangent",
        PASSES,
        "self.builder.emit(ir.Append(beside, self.held(value, beside), span))",
        "self.builder.emit(ir.Append(beside, zero(type_of(value)), span))",
        ("tests/autodiff/test_second_order.py",),
    ),
    Fault(
        "a stack that was taken from is one record too deep",
        PASSES,
        "self.advance(depth, -1)",
        "self.advance(depth, 0)",
        ("tests/autodiff/test_second_order.py",),
    ),
    Fault(
        "what is restored has the value of the record before",
        PASSES,
        "self.advance(taken, 1)",
        "pass",
        ("tests/autodiff/test_second_order.py",),
    ),
    Fault(
        "the adjoint of a primal takes no cotangents of what it appended",
        AUTODIFF,
        "self.kept.add(argument)",
        "pass",
        ("tests/autodiff/test_second_order.py",),
    ),
    Fault(
        "an array of which another view differs between lanes is shared by them",
        AUTODIFF,
        "more |= {i for i, memory in arrays.items() if memory in memories}",
        "pass",
        ("tests/passes/test_batch.py",),
    ),
    Fault(
        "a store does not store the tangent",
        PASSES,
        "self.builder.emit(ir.Store(beside, self.place(stmt), self.held(value, beside), span))",
        "pass",
    ),
    Fault("the tangent of the right factor is lost", PASSES, "return total([left, right])", "return left"),
    Fault(
        "a difference has the tangent of a sum",
        PASSES,
        "total(d if sign > 0 else -d for sign, d",
        "total(d for sign, d",
    ),
    Fault(
        "the tangent of what a carry starts with is lost",
        PASSES,
        "inits, carries = self._both(stmt.inits, moved), self._fresh_both(stmt.carries, moved)",
        "carries = self._fresh_both(stmt.carries, moved)\n        inits = self._both(stmt.carries, moved)",
    ),
    Fault(
        "the tangent of a maximum goes to the loser",
        PASSES,
        "wins = better(self.builder, stmt.kind, value, old)",
        "wins = better(self.builder, stmt.kind, old, value)",
    ),
)
RECORD = (
    Fault(
        "a load from an array that another parameter may change is not kept",
        PASSES,
        "stmt.held is None and shared[array] & changed",
        "stmt.held is None and array in changed",
        (PROGRAMS, *TAPES),
    ),
    Fault(
        "the old value of an atomic is kept only for extrema",
        PASSES,
        "if out in used or (kind in EXTREMA and is_differentiable(out.type)):",
        "if kind in EXTREMA and is_differentiable(out.type):",
    ),
    Fault(
        "what an extremum found is not kept",
        PASSES,
        "if out in used or (kind in EXTREMA and is_differentiable(out.type)):",
        "if out in used:",
    ),
    Fault(
        "a cursor moves on by one an iteration, however many values it makes",
        PASSES,
        'b.apply("mul", head["index"], integer(step))',
        'b.apply("mul", head["index"], integer(1))',
    ),
    Fault(
        "a loop inside a loop counts as one value",
        PASSES,
        "return None if inner is None else inner * int(holder.count.value)",
        "return inner",
    ),
    Fault(
        "the cursor behind a loop is one iteration too far",
        PASSES,
        'b.apply("mul", head["count"], integer(n))',
        'b.apply("mul", b.apply("add", head["count"], integer(1)), integer(n))',
    ),
)
EFFECTS = (
    Fault(
        "after a store other elements of the array are still known",
        PASSES,
        "in ir.changed(stmt):\n            self.forget(array)",
        "in () if isinstance(stmt, ir.Store) else ir.changed(stmt):\n            self.forget(array)",
    ),
    Fault(
        "after an atomic the array is still known",
        PASSES,
        "in ir.changed(stmt):\n            self.forget(array)",
        "in () if isinstance(stmt, ir.Atomic) else ir.changed(stmt):\n            self.forget(array)",
    ),
    Fault(
        "a write through another parameter is not noticed",
        PASSES,
        "lost = self.shared[array]",
        "lost = {array}",
        (PROGRAMS, *TAPES),
    ),
    Fault(
        "a loop reads what was known before its first iteration",
        PASSES,
        "self.forget_changed(stmt.body)\n        super().loop(stmt)",
        "super().loop(stmt)",
    ),
    Fault(
        "what atomics change does not count as changed",
        PASSES,
        "return self.writes | self.accumulates",
        "return self.writes",
    ),
    Fault(
        "parameters that share memory are taken for apart",
        PASSES,
        "shared.update(dict.fromkeys(group, frozenset(group)))",
        "pass",
        (PROGRAMS, *TAPES),
    ),
    Fault(
        "no array is taken for changed in a branch",
        PASSES,
        "for block in ir.blocks(stmt):\n            self.forget_changed(block)",
        "for block in ir.blocks(stmt)[:1]:\n            self.forget_changed(block)",
    ),
)
ACTIVITY = (
    Fault(
        "what a loop starts with goes nowhere",
        LANG,
        "yield from zip(stmt.inits, stmt.carries, strict=True)",
        "yield from ()",
    ),
    Fault(
        "what a branch yields is not varied",
        LANG,
        "yield from zip(inner.yields, outs, strict=True)",
        "yield from ()",
    ),
    Fault("selections mask nothing", PASSES, '("selects", "vanishes")', '("nothing",)'),
    Fault(
        "a value that was saved and restored carries no tangent",
        PASSES,
        "yield from (((stack, i), out) for i, out in enumerate(outs))",
        "pass",
        SECOND,
    ),
    Fault(
        "what is stored into a local array does not vary it",
        LANG,
        "yield value, array",
        "yield from ()",
    ),
)
HAZARDS = (
    Fault(
        "only a write through the same view is a hazard",
        AUTODIFF,
        "(target is needed or target.overlaps(needed))",
        "target is needed",
        TAPES,
    ),
    Fault(
        "overwritten bytes are not saved",
        AUTODIFF,
        "self._pieces.append((lost, values))",
        "pass",
        TAPES,
    ),
    Fault(
        "the box of an access ends one element early",
        PASSES,
        "(low, (high - low) // step + 1 if step else 1, step or 1)",
        "(low, (high - low) // step if step else 1, step or 1)",
        TAPES,
    ),
    Fault(
        "the values of a loop's counter end one early",
        PASSES,
        "_up_to(min(trips.high, last + 1))",
        "_up_to(min(trips.high - 1, last + 1))",
        TAPES,
    ),
    Fault(
        "the box around two accesses is that of the second",
        PASSES,
        "hull = [_hull(before, more) for before, more in pairs]",
        "hull = [more for before, more in pairs]",
        TAPES,
    ),
    Fault(
        "an index from the end counts from the start",
        PASSES,
        "counted = Range(below.low + extent, below.high + extent, below.step)",
        "counted = Range(-below.high, -below.low, below.step)",
        (f"{CONTRACT}overwrites.py", *TAPES),
    ),
    Fault("the policy error is ignored", AUTODIFF, 'self.guard.policy == "error"', "False", TAPES),
    Fault(
        "a change through NumPy is not reported",
        AUTODIFF,
        "raise TapeError(self._changed_unseen())",
        "pass",
        TAPES,
    ),
    Fault(
        "adjoints read the new bytes though the old ones were saved",
        AUTODIFF,
        "return {i: source for i, snapshot in self._checked() if (source := snapshot.source) is not None}",
        "return {}",
        TAPES,
    ),
    Fault(
        "arrays that share memory are told apart by what a kernel writes alone",
        RUNTIME,
        "and (i in changed or j in changed)",
        "and (i in changed and j in changed)",
        TAPES,
    ),
    Fault(
        "two views of one allocation count as apart",
        RUNTIME,
        "and share_bytes(one, other)",
        "and one is other",
        TAPES,
    ),
    Fault(
        "an array ends one element early",
        RUNTIME,
        "extent = bounds(self._address, self.shape, self.strides, itemsize(self.dtype))",
        "low, high = bounds(self._address, self.shape, self.strides, itemsize(self.dtype))\n"
        "            extent = (low, high - itemsize(self.dtype))",
        TAPES,
    ),
)
SWEEP = (
    Fault(
        "a copy of what has no gradients leaves the adjoint of what it overwrote",
        AUTODIFF,
        "level.clear(adjoints.of(self.dest))",
        "pass",
        TAPES,
    ),
    Fault(
        "a copy replaces the adjoint of its source",
        AUTODIFF,
        "            level.move(source, bar, add=True)\n            level.clear(bar)",
        "            level.move(source, bar)\n            level.clear(bar)",
        TAPES,
    ),
    Fault(
        "a fill leaves the adjoint of what it overwrote",
        AUTODIFF,
        "if dest_bar is not None:\n            cleared(dest_bar)",
        "if dest_bar is not None:\n            pass",
        TAPES,
    ),
    Fault(
        "a leaf's gradient does not add up over backward passes",
        AUTODIFF,
        "np.add(values, more, out=values)",
        "values[...] = more",
        TAPES,
    ),
    Fault(
        "the cotangent of a seed is not added to that of another view",
        AUTODIFF,
        "values[...] = values + values_of(cotangent)",
        "values[...] = values_of(cotangent)",
        TAPES,
    ),
)
SIGNS = (
    Fault(
        "the derivative of cos has the wrong sign",
        BUILTINS,
        '"cos", np.cos, lambda y, x: -sin(x))',
        '"cos", np.cos, lambda y, x: sin(x))',
        RULES,
    ),
    Fault(
        "the derivative of atan loses its square",
        BUILTINS,
        "1.0 / (1.0 + x * x))",
        "1.0 / (1.0 + x))",
        RULES,
    ),
    Fault(
        "the cotangents of a cross product point backwards",
        BUILTINS,
        "lambda w, a, b: cross(b, w), lambda w, a, b: cross(w, a)",
        "lambda w, a, b: cross(w, b), lambda w, a, b: cross(a, w)",
        RULES,
    ),
    Fault(
        "abs has the derivative 1 everywhere",
        BUILTINS,
        "lambda y, x: where(gt(x, 0.0), 1.0, where(lt(x, 0.0), x.const(-1.0), 0.0)),",
        "lambda y, x: x.const(1.0),",
        RULES,
    ),
)
FAULTS = (*VJP, *STORAGE, *JVP, *RECORD, *EFFECTS, *ACTIVITY, *HAZARDS, *SWEEP, *SIGNS)
