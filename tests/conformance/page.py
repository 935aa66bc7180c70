"""The language as a page, written from its rules: ``python -m tests.conformance.page > docs/language.md``.

Every program of the page is a test, so the page cannot say what is not so.
"""

from collections.abc import Iterator
from itertools import groupby

from tests.conformance.rule import PARAMETERS, Rule, arguments, rules

INTRODUCTION = """\
# The language

A kernel is Python with types. It runs once for each thread of a launch, and `tid()` tells a thread which
one it is.

```
%%kernel
def scale(x: array[float], factor: float, y: array[float]):
    i = tid()
    y[i] = factor * x[i]
```

* Each parameter of a kernel has an annotation: a number (`int`, `float`, `float64`, `bool`, ...), a
  vector, matrix, quaternion or transform (`vec3`, `mat33`, `quat`, `transform`), a struct, or an array of
  one of these (`array[vec3]`, `array2d[float]`).
* A def that returns a value is a function: kernels and other functions call it. Its annotations may be
  left out.
* A variable has one type, that of what is assigned to it. Numbers, structs and functions of the notebook are
  captured when the cell runs; where a later cell changes one, or a module that holds one is loaded again,
  a warning under that cell names the kernels that still hold the old one. Of a kernel in a file, or of
  `kl.compile`, the next launch says so once. What is decorated with `@kl.kernel` or `@kl.func` captures them
  when it is first needed: kernels that a loop defines, and that are launched behind it, share its last value.
* A negative index counts from the end, as in Python. Where one that is computed does, as `x[i - 1]` in
  thread 0, the first launch warns at the line. With `kl.config.negative_index = "error"` it is an error, as
  `x[i + 1]` in the last thread always is; with `"wrap"` there is no warning. `x[-1]` is written out, and
  nothing warns of it. Of a vector or matrix only an index that is written out may be negative: `v[k - 1]` is
  an error where it is below zero.
* What the language does not have is refused at its line, with what to write instead.
* Operations and words: `docs/builtins.md`, which `make docs` writes; `python -m kernelab.builtins.reference`
  prints it. What loops cost in reverse: `docs/loops.md`. Programs written for Warp:
  `docs/differences-from-warp.md`.

What follows are the rules, each with a small program that shows it. They stand in
`tests/conformance/rules/`, and each is tested by the interpreter and as machine code, and its derivatives
against differences. The programs are bodies of one kernel,
"""


def page() -> str:
    """The introduction, then every rule under its heading."""
    sections = [INTRODUCTION, _given()]
    for heading, found in groupby(rules().items(), key=lambda item: item[0].partition(": ")[0]):
        sections += [f"## {heading.capitalize()}\n", *_section([rule for _, rule in found])]
    return "\n".join(sections)


def _given() -> str:
    values = (f"{name} = {_shown(value)}" for name, value in arguments().items())
    return "\n".join(
        ["```python", f"def rule({PARAMETERS}):", "```", "", "run with", "", "```python", *values, "```", ""]
    )


def _shown(value: object) -> str:
    return str(getattr(value, "tolist", lambda: value)())


def _section(found: list[Rule]) -> Iterator[str]:
    """Each rule, and the defs of one where those of the rule before were others."""
    before = ""
    for rule in found:
        defs = rule.before if rule.before != before else ""
        before = rule.before
        text = f"{defs}\n\n{rule.body}" if defs else rule.body
        yield f"**{rule.sentence}**\n\n```python\n{text}{_result(rule)}\n```\n"


def _result(rule: Rule) -> str:
    numbers = ", ".join(f"{number:g}" for number in rule.gives)
    threads = f" after {rule.threads} threads" if rule.threads > 1 else ""
    return f"# out: {numbers}{threads}"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
