"""Faults of vector code: float64 and integers in each lane; and of the gradients of fields of structs."""

from tests.planted.faults import AUTODIFF, Fault
from tests.planted.later import CODEGEN, VECTORS

ROWS = ("tests/codegen/test_vector_rows.py",)
COLUMNS = ("tests/codegen/test_vector_columns.py",)
FIRST_COLUMNS = ("tests/codegen/test_first_columns.py",)
BACKWARD_PASS = ("tests/autodiff/test_backward.py",)

LANES = (
    Fault(
        "a mask chooses the other float64",
        CODEGEN,
        'return f"mask_64({mask})" if scalar == float64 else mask',
        'return f"(~mask_64({mask}))" if scalar == float64 else mask',
        VECTORS,
    ),
    Fault(
        "saved float64s take the place of float32s",
        CODEGEN,
        "(8 if scalar_type(atom) == float64 else 4) for atom in atoms",
        "4 for atom in atoms",
        VECTORS,
    ),
    Fault(
        "the largest float64s become the least integer",
        CODEGEN,
        "return {is}(x >= 0x1p31{f}) ? splat(0x7fffffff) : {is}(x == x) ? truncated(x) : vi{{}};",
        "return {is}(x == x) ? truncated(x) : vi{{}};",
        VECTORS,
    ),
    Fault(
        "signed numbers are shifted as unsigned ones",
        CODEGEN,
        "psrav{width}si(x, n)",
        "psrlv{width}si(x, n)",
        VECTORS,
    ),
    Fault(
        "the quotients of neighbours are all that of the first",
        CODEGEN,
        "return whole - (first - whole * n + iota >= n);",
        "return splat(whole);",
        VECTORS,
    ),
    Fault(
        "an assertion of a launch holds where it does not",
        CODEGEN,
        'return one and other and f"{one.low} {SYMBOLS[op.name]} {other.low}"',
        'return one and other and "true"',
        VECTORS,
    ),
    Fault(
        "vectors side by side are written whole though some lanes are off",
        CODEGEN,
        "if (are_all(mask)) return put_components_{kind}(p, {given});",
        "if (any(mask)) return put_components_{kind}(p, {given});",
        VECTORS,
    ),
    Fault(
        "vectors side by side are stored where they are to be added",
        CODEGEN,
        'before = f"({VECTORS[scalar]})old.at[{k}] + " if isinstance(stmt, ir.Atomic) else ""',
        'before = ""',
        VECTORS,
    ),
    Fault(
        "vectors are read beyond their end",
        CODEGEN,
        "if (n == 4) return *(const FourU*)p;",
        "return *(const FourU*)p;",
        ROWS,
    ),
    Fault(
        "the second and the third component of a vector are the same",
        CODEGEN,
        '"high_pairs(xy0, xy2)", "low_pairs(zw0, zw2)"',
        '"high_pairs(xy0, xy2)", "high_pairs(xy0, xy2)"',
        ROWS,
    ),
    Fault(
        "the first lanes of each four change the vectors of the second ones",
        CODEGEN,
        "put_rows(rows, low_pairs(xy0, zw0)), put_rows(rows + 1, high_pairs(xy0, zw0));",
        "put_rows(rows + 1, low_pairs(xy0, zw0)), put_rows(rows, high_pairs(xy0, zw0));",
        ROWS,
    ),
    Fault(
        "columns are read beyond the end of their row",
        CODEGEN,
        "all[k] = fetch(p + offsets[k], there);",
        "all[k] = *(const vfu*)(p + offsets[k]);",
        COLUMNS,
    ),
    Fault(
        "the last columns that a loop changes are not written",
        CODEGEN,
        'yield f"put_columns({columns});"',
        "yield from ()",
        COLUMNS,
    ),
    Fault(
        "a loop keeps columns that it changes elsewhere, too",
        CODEGEN,
        "if not all(one.indices == stmt.indices and one in loop.body.stmts for one in inside):",
        "if not inside:",
        COLUMNS,
    ),
    Fault(
        "rows of columns may be those of other threads",
        CODEGEN,
        "return is_own and {*function.threads}.issubset(rows) and",
        "return is_own and",
        COLUMNS,
    ),
    Fault(
        "rows that do not follow one another are read as if they did",
        CODEGEN,
        'rows = f" && {name}_s{axis - 1} == {4 * count}" if are_next else ""',
        'rows = ""',
        FIRST_COLUMNS,
    ),
    Fault(
        "a column that is written twice counts for another one",
        CODEGEN,
        "return column not in known and column // ROW == known[0] // ROW",
        "return column // ROW == known[0] // ROW",
        FIRST_COLUMNS,
    ),
    Fault(
        "the third component of a vector is not added",
        CODEGEN,
        "if (n == 3) ((float*)at)[2] += value[2];",
        "if (n == 5) ((float*)at)[2] += value[2];",
        ROWS,
    ),
    Fault(
        "fields of structs that are not read are added to their gradients",
        AUTODIFF,
        "if len(dtypes) == 1 and sum(like.nbytes for like, _ in outlines) == memory.nbytes:",
        "if len(dtypes) == 1:",
        BACKWARD_PASS,
    ),
    Fault(
        "slices that have elements in common count for lying apart",
        AUTODIFF,
        "return len(some) <= MOST_PARTS and not any(a.overlaps(b) for a, b in combinations(some, 2))",
        "return len(some) <= MOST_PARTS",
        BACKWARD_PASS,
    ),
    Fault(
        "elements on a ring always lie side by side",
        CODEGEN,
        "!any({offsets} != {offsets}[0] + {bytes_of(elem)} * iota);",
        "true;",
        VECTORS,
    ),
    Fault(
        "one thread comes to each element of a ring",
        CODEGEN,
        '{extent} > 0 ? {{0}} / {extent} + 1 : {{0}})"',
        '{extent} > 0 ? 1 : {{0}})"',
        ("tests/codegen/test_totals.py",),
    ),
)
