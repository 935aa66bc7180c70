"""Checks after a cell has run: names that it changed and kernels captured, and likely mistakes.

A failed cell leaves an earlier kernel of the same name, or a kernel read as plain Python.  Knows what
kernels and functions captured, the text and the error of a cell, and the names of the notebook; must not
know launches, which pay nothing.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kernelab.errors import Diagnostic, KernelError, Source, Span
from kernelab.frontend.definitions.functions import UserFunction
from kernelab.frontend.meaning.name_lookup import OF_STRUCTS, language
from kernelab.runtime.array.array import array
from kernelab.runtime.kernel.decorators import Function
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.loading import current, same, stale
from kernelab.runtime.ops.function_calls import stated_kernel

# ---------------------------------------------------------------------------------------------- changed names


Holder = Kernel | UserFunction


class Watch:
    """Compares after each cell; a name of a cell's kernels is spoken of once, until that cell runs again."""

    def __init__(self) -> None:
        self.told: set[tuple[Source, str]] = set()
        self.replaced: dict[str, Holder | Function] = {}

    def look(self, names: Mapping[str, Any]) -> list[Diagnostic]:
        """The warnings that are due now, one for each name of a cell."""
        stale: dict[tuple[Source, str], list[Holder]] = {}
        sources: set[Source] = set()
        for holder in _holders(names):
            sources.add(holder.source)
            for name in (*_changed(holder, names), *_hidden(holder, names)):
                stale.setdefault((holder.source, name), []).append(holder)
        new = {key: holders for key, holders in stale.items() if key not in self.told}
        self.told = {key for key in self.told | stale.keys() if key[0] in sources}
        warnings = [_warning(name, holders, names) for (_, name), holders in new.items()]
        # Kernels and functions that a module has held otherwise since it was loaded again.
        before, self.replaced = self.replaced, {name: one for name, one in names.items() if _is_replaced(one)}
        for name, one in self.replaced.items():
            if before.get(name) is not one:
                module = inspect.unwrap(one).__module__
                message = f"`{name}` is what {module} defined before it was loaded again"
                hint = f"run `from {module} import {one.name}` again"
                span = getattr(one.lowered, "span", None) if isinstance(one, Function) else one.span
                warnings.append(Diagnostic(message, span, "stale", "warning", hint=hint))
        return warnings


class Rules:
    """Finds the functions of a notebook whose derivative rules have not been compared with differences."""

    def __init__(self) -> None:
        self.looked: WeakKeyDictionary[UserFunction, Any] = WeakKeyDictionary()

    def kernels(self, names: Mapping[str, Any]) -> list[Kernel]:
        """A kernel that calls each function that has got rules since this was last asked."""
        kernels = []
        for member in _functions(names):
            if member.rules is not None and self.looked.get(member) is not member.rules:
                self.looked[member] = member.rules
                kernel = stated_kernel(member)
                kernels += [kernel] if isinstance(kernel, Kernel) else []
        return kernels


def _functions(names: Mapping[str, Any]) -> Iterator[UserFunction]:
    for value in list(names.values()):
        if isinstance(value, UserFunction):
            yield from value.members
        elif isinstance(value, Function) and value.rules:
            try:
                yield from value.__kernelab_function__.members
            except KernelError:
                continue  # a name that it uses is not there yet: it is compared when it is first used


def _holders(names: Mapping[str, Any]) -> Iterator[Holder]:
    """The kernels and functions that cells of this notebook defined and that it still names, each once.

    IPython keeps what a cell has shown as `_`, `_12`, ...: an earlier kernel there is no one's to run again.
    """
    named = (value for name, value in names.items() if not re.fullmatch(r"_+|_\d+", name))
    for value in {id(value): value for value in named}.values():
        # What is decorated and has not been used yet has not been lowered, and holds nothing.
        holders: tuple[Holder | None, ...] = ()
        if isinstance(value, Kernel):
            holders = value.lowered
        elif isinstance(value, Function | UserFunction):
            holders = (value.lowered if isinstance(value, Function) else value,)
        yield from (one for one in holders if one is not None and one.source.label.startswith("Cell In["))


def _changed(holder: Holder, names: Mapping[str, Any]) -> Iterator[str]:
    """The names in the holder's own text that the notebook has rebound."""
    enclosed = inspect.unwrap(holder).__code__.co_freevars if hasattr(holder, "__wrapped__") else ()
    for name, then in _captured(holder).items():
        # A function of a module brings its own names along, which mean something else in the notebook.
        is_named = name in OF_STRUCTS or re.search(rf"\b{re.escape(name)}\b", holder.source.text)
        if is_named and name not in enclosed and not same(then, current(names, name, then)):
            yield name


def _hidden(holder: Holder, names: Mapping[str, Any]) -> Iterator[str]:
    """The functions of its own cell that it calls, and that another cell has defined anew."""
    for name, value in names.items():
        elsewhere = isinstance(value, UserFunction) and value.source is not holder.source
        if elsewhere and re.search(rf"(?m)^def {re.escape(name)}\b", holder.source.text):
            below = holder.source.text.splitlines()[holder.span.line + 1 - holder.source.first_line :]
            body = takewhile(lambda line: not line.strip() or line[0] in " \t)#", below)
            if re.search(rf"\b{re.escape(name)}\s*\(", "\n".join(body)):
                yield name


def _is_replaced(holder: Any) -> bool:
    if not isinstance(holder, Holder | Function) or not hasattr(holder, "__wrapped__"):
        return False
    function = inspect.unwrap(holder)
    module = sys.modules.get(function.__module__) if function.__module__ != "__main__" else None
    now = getattr(module, function.__qualname__, None)
    return isinstance(now, Holder | Function) and now is not holder and hasattr(now, "__wrapped__")


def _captured(holder: Holder) -> Mapping[str, Any]:
    """What a text was compiled with; of the names in `static(...)` arrays may be there for their length."""
    lowered = holder.definition if isinstance(holder, Kernel) else holder
    constants = lowered.constants.values() if isinstance(lowered, UserFunction) else lowered.constants
    plain = (one for one in constants if not isinstance(one.value, np.ndarray | array))
    return {one.name: one.value for one in plain} | {**lowered.captured}


def _warning(name: str, holders: list[Holder], names: Mapping[str, Any]) -> Diagnostic:
    first = holders[0]
    several = list(dict.fromkeys(f"`{holder.name}`" for holder in holders))
    who = " and ".join(several)
    if name not in _captured(first):
        called = f"call{'s' * (len(several) == 1)} the `{name}` of {first.source.label}"
        message = f"{who} {called}, not the one of {names[name].source.label}"
        hint = f"change `{name}` in {first.source.label}, or take it out there, and run that again"
        return Diagnostic(message, first.span, "stale", "warning", hint=hint)
    then = _captured(first)[name]
    message = stale(f"{who} {'was' if len(several) == 1 else 'were'}", name, then, current(names, name, then))
    label = first.source.label
    assigns = re.search(rf"(?m)^{re.escape(name)}\s*(:[^=]+)?=", first.source.text)
    hint = f"change {name} in {label}, and run that again" if assigns else f"run {label} again"
    return Diagnostic(message, first.span, "stale", "warning", hint=hint)


# --------------------------------------------------------------------------------------------------- mistakes


class Mistakes:
    """Remembers the kernels that a failed cell was to replace, until a later cell uses or replaces them."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Kernel, str]] = {}

    def look(self, cell: Source, error: object, names: Mapping[str, Any]) -> list[Diagnostic]:
        """What there is to say after a cell."""
        self.kept = {name: kept for name, kept in self.kept.items() if names.get(name) is kept[0]}
        if not re.match(r"\s*%%kernel\b", cell.text):
            used = [name for name in self.kept if re.search(rf"\b{name}\b", cell.text)]
            misread = [*_without_magic(cell, error), *_called_attribute(cell, error, names)]
            return [*misread, *(_kept(name, *self.kept.pop(name)) for name in used)]
        if error is not None:
            for name in re.findall(r"(?m)^def +(\w+)", cell.text):
                one = names.get(name)
                if isinstance(one, Kernel) and one.source.label != cell.label:
                    self.kept[name] = (one, cell.label)
        return []


def _kept(name: str, kernel: Kernel, failed: str) -> Diagnostic:
    message = f"`{name}` is still the kernel of {kernel.source.label}: the new one in {failed} has a mistake"
    return Diagnostic(message, kernel.span, "stale", "warning", hint=f"fix {failed}, and run that again")


def _called_attribute(cell: Source, error: object, names: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """What to say where an attribute of an array was called, as a method of PyTorch's tensors is."""
    if not (isinstance(error, TypeError) and "object is not callable" in str(error)):
        return
    for called in re.finditer(r"\b(\w+)\.(shape|size|ndim|dtype|strides|T)\(", cell.text):
        if isinstance(names.get(called[1]), array):
            message = f"the {called[2]} of an array is not a function"
            hint = f"write {called[1]}.{called[2]}, without parentheses"
            hint += f"; {called[1]}.shape[0] is its first extent" if called[2] in ("shape", "size") else ""
            yield Diagnostic(message, _place(cell, called, 2), "call", "information", hint=hint)
            return


def _without_magic(cell: Source, error: object) -> Iterator[Diagnostic]:
    """What to say where Python met a word of kernels in the head of a def."""
    name = (error.name if isinstance(error, NameError) else None) or ""
    if name in ("kernel", "func", "struct") and (word := re.search(rf"(?m)^@(?P<word>{name})\b", cell.text)):
        hint = f"write @kl.{name}; or write %%kernel as the first line, and leave the decorator out"
        message = f"the decorator {name} is a name of kernelab"
        yield Diagnostic(message, _place(cell, word, "word"), "magic", "information", hint=hint)
        return
    head = re.search(rf"(?m)^def .*\b(?P<word>{re.escape(name)})\b", cell.text) if name else None
    if name not in language() or head is None:
        return
    message = f"{name} is a word of kernels, and this cell is plain Python"
    hint = "write %%kernel as its first line"
    if decorator := re.search(r"(?m)^@(\w+)\.kernel\b", cell.text):
        hint = f"write {decorator[1]}.{name}; or {hint}, and leave the decorator out"
    yield Diagnostic(message, _place(cell, head, "word"), "magic", "information", hint=hint)


def _place(cell: Source, found: re.Match[str], group: int | str) -> Span:
    """The place of a group of what was found in a cell."""
    first, last = found.span(group)
    line, column = cell.text.count("\n", 0, first) + 1, first - cell.text.rfind("\n", 0, first) - 1
    return Span(cell, line, column, line, column + last - first)
