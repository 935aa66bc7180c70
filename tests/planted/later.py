"""More faults: in boxes and indices, sums, the storage of loops, casts, checkpoints, races and versions."""

from tests.planted.faults import AUTODIFF, CONTRACT, PASSES, RUNTIME, TAPES, Fault

CODEGEN = "kernelab/codegen"
BOXES = (
    "tests/passes/test_boxes.py",
    f"{CONTRACT}while.py",
    f"{CONTRACT}overwrites.py",
    f"{CONTRACT}overwrites_random.py",
)
BACKEND = "kernelab/backend/cpu"
CORES = ("tests/backend/test_cores.py",)
SUMS = ("tests/codegen/test_totals.py",)
VECTORS = ("tests/codegen/test_vectors.py",)
GATHERED = ("tests/autodiff/test_gathered_sums.py",)
RACES = ("tests/runtime/test_races.py",)
CHECKPOINTS = ("tests/autodiff/test_checkpoint.py",)
VERSIONS = ("tests/autodiff/test_coverage.py", f"{CONTRACT}versions.py")

CHECKS = "tests/autodiff/test_gradcheck.py"
TOLERANCE = "tests/contract/test_tolerance.py"
UNITS = f"{TOLERANCE}::test_a_wrong_entry_fails_beside_rows_and_columns_in_larger_units"

BROKEN_CHECKS = (
    Fault(
        "a gradient check allows a tenth of an entry",
        AUTODIFF,
        "RELATIVE = 1e-3\n",
        "RELATIVE = 1e-1\n",
        (CHECKS,),
    ),
    Fault(
        "a gradient check measures every entry by the largest",
        AUTODIFF,
        "np.minimum(np.minimum(by_row[rows], by_column[columns]), both)",
        "np.full(len(sizes), sizes.max(initial=0.0))",
        (UNITS,),
    ),
    Fault(
        "a gradient check excuses every entry that fails",
        AUTODIFF,
        "pair.excused |= off & (approached | scattered)",
        "pair.excused |= off",
        (CHECKS, TOLERANCE),
    ),
    Fault(
        "a gradient check does not look at the adjoint in its own precision",
        AUTODIFF,
        "np.maximum(np.where(excused, 0.0, by_differences), by_precision)",
        "np.where(excused, 0.0, by_differences)",
        (CHECKS,),
    ),
    Fault(
        "a gradient check leaves out the last row",
        AUTODIFF,
        "mask = a.evaluated.copy()",
        "mask = a.evaluated.copy()\n            mask[-1:] = False",
        (UNITS,),
    ),
    Fault(
        "a gradient check along directions allows a tenth",
        AUTODIFF,
        "EXACT = 1e-8",
        "EXACT = 1e-1",
        ("tests/autodiff/test_gradcheck_fast.py",),
    ),
    Fault(
        "a gradient check along directions rescales nothing",
        AUTODIFF,
        "if asked is not None and not _agree(self._compared(*asked, scale)[0]):",
        "if False:",
        (UNITS,),
    ),
    Fault(
        "a gradient check does not look for chains through the host",
        AUTODIFF,
        "by_host = through_host(subject, labels)",
        "by_host = frozenset[str]()",
        ("tests/contract/test_host_chains.py",),
    ),
    Fault(
        "a gradient check does not look for races",
        AUTODIFF,
        "    raced = races(subject, labels)\n    if fast",
        "    raced: dict[Any, Raced] = {}\n    if fast",
        ("tests/contract/test_verdicts.py",),
    ),
    Fault(
        "a pattern of a sparse Jacobian is checked by its largest row",
        AUTODIFF,
        "np.bincount(places, np.abs(terms), len(product))).all()",
        "np.bincount(places, np.abs(terms), len(product)).max()).all()",
        ("tests/contract/test_sparse.py",),
    ),
)

LATER = (
    *BROKEN_CHECKS,
    Fault(
        "a hull of two ranges forgets how far they are apart",
        PASSES,
        "math.gcd(a.step, b.step, abs(a.low - b.low))",
        "math.gcd(a.step, b.step) or 1",
        BOXES,
    ),
    Fault(
        "the box of a counter ends one short",
        PASSES,
        "return Range(0, count - 1, int(count > 1))",
        "return Range(0, max(count - 2, 0), int(count > 2))",
        BOXES,
    ),
    Fault(
        "the last iteration of a while loop does not count",
        PASSES,
        "return passed + 1 if fits else None",
        "return passed if fits else None",
        BOXES,
    ),
    Fault(
        "a counter that wraps around is taken as exact",
        PASSES,
        "return passed + 1 if fits else None",
        "return passed + 1",
        BOXES,
    ),
    Fault(
        "two choices between the same integers are taken for one",
        PASSES,
        "self.joins += 1",
        "self.joins += 0",
        BOXES,
    ),
    Fault(
        "what only one way through an iteration adds to a counter is taken for all",
        PASSES,
        "return steps.pop() if len(steps) == 1 else None",
        "return steps.pop() if steps else None",
        (*BOXES, f"{CONTRACT}control_flow.py"),
    ),
    Fault(
        "a guard i < n keeps the last index out",
        PASSES,
        'case "lt":\n            yield Guard(left, right, 1)',
        'case "lt":\n            yield Guard(left, right, 2)',
        BOXES,
    ),
    Fault(
        "a change in the same iteration counts as one before the read",
        PASSES,
        "(ahead > 0 if read.reverse else ahead < 0)",
        "(ahead >= 0 if read.reverse else ahead <= 0)",
        (*BOXES, f"{CONTRACT}in_place.py", *TAPES),
    ),
    Fault(
        "an element that is read in between has a running total",
        CODEGEN,
        "case ir.Load(_, array) | ir.Store(array) | ir.Alloc(array):",
        "case ir.Store(array) | ir.Alloc(array):",
        SUMS,
    ),
    Fault(
        "one thread index among the indices counts as an element of one's own",
        PASSES,
        "all(separates((thread,)) for thread in function.threads)",
        "any(separates((thread,)) for thread in function.threads)",
        SUMS,
    ),
    Fault(
        "sums beside an array reach half as far",
        CODEGEN,
        "low + (k << 6 << sums.shift)",
        "low + (k << 5 << sums.shift)",
        SUMS,
    ),
    Fault(
        "vector code runs the else branch in the lanes of the other one",
        CODEGEN,
        'for holds in (cond, f"!{cond}")]',
        "for holds in (cond, cond)]",
        VECTORS,
    ),
    Fault(
        "vector code takes an index for within its array that is not above its bound",
        CODEGEN,
        'return f"larger({bounds[0]}, {other[0]} + {gap})", bounds[1]',
        'return f"larger({bounds[0]}, {other[0]} + 2 * {gap})", bounds[1]',
        VECTORS,
    ),
    Fault(
        "vector code takes an index for within its array that is not below its bound",
        CODEGEN,
        'return bounds[0], f"smaller({bounds[1]}, {other[1]} - {gap})"',
        'return bounds[0], f"smaller({bounds[1]}, {other[1]} - 2 * {gap})"',
        VECTORS,
    ),
    Fault(
        "vector code takes a group for one that is in one branch where some of it is",
        CODEGEN,
        'self.arm(stmt, usual, f"if (!any({others}))", "")',
        'self.arm(stmt, usual, f"if (bits({others}) != 65535)", "")',
        VECTORS,
    ),
    Fault(
        "an element collects from the thread on the other side",
        PASSES,
        'threads = [b.apply("sub", place, shift)',
        'threads = [b.apply("add", place, shift)',
        GATHERED,
    ),
    Fault(
        "elements at the border of a stencil collect as those inside do",
        PASSES,
        "ends = [min(lows), max(lows), min(highs), max(highs)]",
        "ends = [min(lows), min(lows), max(highs), max(highs)]",
        GATHERED,
    ),
    Fault(
        "an adjoint is cleared before neighbours have collected from it",
        AUTODIFF,
        "        for each, border, inner in self._sums:\n            parts",
        '        if self._rest is not None:\n            programs.append((self._rest, b"", b""))\n'
        "        for each, border, inner in self._sums:\n            parts",
        GATHERED,
    ),
    Fault(
        "the running totals of lanes that are off at last are lost",
        CODEGEN,
        "{own.reached} |= {self.mask or 'on'};",
        "{own.reached} = {self.mask or 'on'};",
        VECTORS,
    ),
    Fault(
        "the checks that vector code runs first let everything pass",
        CODEGEN,
        "self.is_checking, self.is_checked = True, False",
        "self.is_checking, self.is_checked = True, True",
        VECTORS,
    ),
    Fault(
        "half of the lanes lose their running totals",
        CODEGEN,
        "{low} += low(addend), {high} += high(addend);",
        "{low} += low(addend), {high} = high(addend);",
        VECTORS,
    ),
    Fault(
        "arrays that share memory see sums late",
        RUNTIME,
        "return self.aliased_entry if self.totals and self.shares(arguments) else self.entry",
        "return self.entry",
        SUMS,
    ),
    Fault(
        "threads that were swept before the memory ran out are swept again",
        RUNTIME,
        "frugal()(args, room=room or 0, left=full.left)",
        "frugal()(args, room=room or 0)",
        (f"{CONTRACT}loop_storage.py",),
    ),
    Fault(
        "that a value lost its derivative on one of two ways is forgotten",
        PASSES,
        "if array not in ends or _rank(end) > _rank(ends[array]):",
        "if array not in ends:",
        ("tests/passes/test_dead_ends.py", f"{CONTRACT}broken_chains.py"),
    ),
    Fault(
        "a thread that uses its element twice races with itself",
        RUNTIME,
        "(store // sites != other // sites)",
        "(store != other)",
        RACES,
    ),
    Fault(
        "one access at the thread's own index proves that there is no race",
        PASSES,
        "return len(shifts) == 1 and None not in shifts",
        "return len(shifts - {None}) == 1",
        RACES,
    ),
    Fault(
        "a store in a loop counts as one that each thread does once",
        PASSES,
        "use.repeats |= in_loop",
        "use.repeats |= False",
        ("tests/backend/test_interp.py",),
    ),
    Fault(
        "the last thread to read an element is not marked",
        PASSES,
        'kinds: tuple[ir.AtomicKind, ...] = ("min", "max")',
        'kinds: tuple[ir.AtomicKind, ...] = ("min", "min")',
        RACES,
    ),
    Fault(
        "rows with one between them count as read",
        AUTODIFF,
        "start > first + count * step",
        "start > first + (count + 1) * step",
        VERSIONS,
    ),
    Fault(
        "an input that the tape overwrites is taken for its own",
        AUTODIFF,
        "self.is_input = first is None",
        "self.is_input = False",
        VERSIONS,
    ),
    Fault(
        "a grad function is not asked about arrays that the function changes",
        AUTODIFF,
        "{name: self.drawn(left[name]) for name in self.changed}",
        "{name: np.zeros(left[name].shape) for name in self.changed}",
        ("tests/runtime/test_rulecheck_arrays.py",),
    ),
    Fault(
        "a jvp function is not compared with differences",
        AUTODIFF,
        '"jvp": self.jvp',
        '"jvp": lambda points: None',
        ("tests/runtime/test_rulecheck_forward.py",),
    ),
    Fault(
        "a replay is compared before its function has stored",
        AUTODIFF,
        "[(param.hint, left[name]) for param, name in parameters]",
        "[(param.hint, points[name]) for param, name in parameters]",
        ("tests/runtime/test_rulecheck_forward.py",),
    ),
    Fault(
        "a number that is computed from another forgets where that was taken",
        "kernelab/host",
        "return traced(compute(untraced(self), untraced(other)), origins(self, other))",
        "return compute(untraced(self), untraced(other))",
        (f"{CONTRACT}taken.py",),
    ),
    Fault(
        "a checkpoint restores what was read last",
        AUTODIFF,
        "all(keep.restore() for keep in reversed(self.keeps))",
        "all(keep.restore() for keep in self.keeps)",
        CHECKPOINTS,
    ),
    Fault(
        "a checkpoint whose second run does something else is not noticed",
        AUTODIFF,
        "inner.signature.sum != self.signature.sum or not",
        "not",
        CHECKPOINTS,
    ),
    Fault(
        "arrays that share memory see sums late in a transform",
        AUTODIFF,
        'run(b"".join(parts), program.shares(arguments))',
        'run(b"".join(parts), False)',
        (*SUMS, "tests/autodiff/test_func.py", "tests/autodiff/test_func_composition.py"),
    ),
    Fault(
        "indices are asked for behind the last one",
        CODEGEN,
        "{self.total} - {AHEAD + self.width - 1} : 0",
        "{self.total} : 0",
        ("tests/codegen/test_prefetch.py",),
    ),
    Fault(
        "indices are asked for before the first one",
        CODEGEN,
        "{condition} ? {AHEAD} : {self.total}",
        "{condition} ? 0 : {self.total}",
        ("tests/codegen/test_prefetch.py",),
    ),
    Fault(
        "a launch whose threads meet runs on several cores",
        BACKEND,
        "ir.Append)) and separate(function)",
        "ir.Append))",
        CORES,
    ),
    Fault(
        "arrays that share memory do not keep a launch on one core",
        BACKEND,
        "or overlapping(self._info, self._changed, slots):",
        "or False:",
        CORES,
    ),
)
