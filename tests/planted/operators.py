"""Faults of whole arrays: operators and maps, sorts, and blocks that threads have to themselves."""

from tests.planted.faults import CONTRACT, PASSES, RUNTIME, Fault

BLOCKS = ("tests/passes/test_blocks.py",)
MAPS = ("tests/runtime/test_elementwise.py", "tests/runtime/test_operands.py")
RULED = (f"{CONTRACT}custom_gradients.py",)
SORTS = (f"{CONTRACT}sorting.py", f"{CONTRACT}utilities.py")

OPERATORS = (
    Fault(
        "blocks that share their last element are apart",
        PASSES,
        "max(ends) - first < max(steps)",
        "max(ends) - first <= max(steps)",
        BLOCKS,
    ),
    Fault(
        "a loop up to the larger of two bounds ends at the smaller",
        PASSES,
        "return max(known) if len(known) == len(bounds) else None",
        "return min(known) if known else None",
        BLOCKS,
    ),
    Fault(
        "the operands of an operator are all the first one",
        RUNTIME,
        "places = tuple([order[id(one)] for one in inputs])",
        "places = tuple([0 for one in inputs])",
        MAPS,
    ),
    Fault(
        "what a map launches is kept before the rules of what it calls are known",
        RUNTIME,
        "_PLANS[name, callee, callee.derivatives, kinds, places] = plan",
        "_PLANS[name, callee, (callee.rules,), kinds, places] = plan",
        RULED,
    ),
    Fault(
        "keys of 64 bits are sorted by their lower half alone",
        RUNTIME,
        "return lower[_order_of_words((kept[lower] >> np.uint64(32)).astype(np.uint32))]",
        "return lower",
        SORTS,
    ),
    Fault(
        "equal keys change places",
        RUNTIME,
        "pairs |= np.arange(len(words), dtype=np.uint64)",
        "pairs |= np.arange(len(words), dtype=np.uint64)[::-1]",
        SORTS,
    ),
)
