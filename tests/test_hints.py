"""The tables of hints: what they say to write is there."""

import re
import sys

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


@pytest.mark.parametrize(
    ("names", "written"),
    [(["wp"], "wp"), (["kernelab"], "kernelab"), (["wp", "kl"], "kl"), ([], "kl")],
)
def test_a_message_calls_the_package_as_the_program_does(
    names: list[str], written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kl", "wp", "kernelab"):
        monkeypatch.delattr(sys.modules["__main__"], name, raising=False)
    for name in names:
        monkeypatch.setattr(sys.modules["__main__"], name, kl, raising=False)
    with pytest.raises(
        AttributeError, match=f"transforms are in {written}[.]func\n  hint: write {written}[.]func"
    ):
        kl.grad  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(
        kl.KernelTypeError, match=rf"hint: convert the float32: x[.]astype\({written}[.]float64\)"
    ):
        kl.ones(2) + kl.ones(2, dtype=kl.float64)
