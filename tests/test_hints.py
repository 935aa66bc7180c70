"""The tables of hints: what they say to write is there."""

import re

import numpy as np
import pytest

import kernelab as kl
from kernelab.guidance import hint_tables, missing_names
from kernelab.guidance.hint_tables import Table

TABLES = {
    name: table
    for module in (hint_tables, missing_names)
    for name, table in vars(module).items()
    if isinstance(table, Table)
}
LIBRARIES = {"kl": kl, "np": np}
MENTIONED = sorted(
    {
        (table, name, dotted)
        for table, entries in TABLES.items()
        for names, text in entries.entries
        for name in (names.split("|") if names.replace("|", "").isidentifier() else [names])
        for dotted in re.findall(r"\b(?:kl|np)\.[\w.]*\w", text.replace("{name}", name))
    }
)


@pytest.mark.parametrize(("table", "name", "dotted"), MENTIONED)
def test_what_a_hint_says_to_write_exists(table: str, name: str, dotted: str) -> None:
    library, *parts = dotted.split(".")
    found: object = LIBRARIES[library]
    for part in parts:
        found = getattr(found, part)


@pytest.mark.parametrize("name", ["median", "quantile", "sort", "tril"])
def test_what_numpy_has_is_written_with_numpy(name: str) -> None:
    for owner in (kl.ones(3), kl):
        with pytest.raises(
            kl.KernelAttributeError, match=rf"hint: write np\.{name}\(x\.numpy\(\)\) on the host"
        ):
            getattr(owner, name)
    with pytest.raises(kl.KernelAttributeError, match=r"has no ndarray\n  hint: did you mean array\?"):
        _ = kl.ndarray  # type: ignore[attr-defined]
