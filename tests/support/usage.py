"""What compiled kernels take of a device, as NVIDIA's assembler tells it: registers, stack, spills."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_KERNEL = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one kernel; the rest in bytes.  The stack holds its local arrays, and what spilled."""

    kernel: str
    registers: int
    stack: int
    stores: int
    loads: int

    def __str__(self) -> str:
        spilled = f"{self.stores} B stored, {self.loads} B loaded by spills"
        return f"{self.kernel}: {self.stack} B of stack, {self.registers} registers, {spilled}"


def usages(log: str) -> Iterator[Usage]:
    """The kernels that a log tells of, in its order."""
    kernel, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if found := _KERNEL.search(line):
            kernel, frame = found[1], (0, 0, 0)
        elif found := _STACK.search(line):
            stack, stores, loads = map(int, found.groups())
            frame = (stack, stores, loads)
        elif (found := _REGISTERS.search(line)) and kernel:
            yield Usage(kernel, int(found[1]), *frame)
            kernel = ""


def told(found: Iterable[Usage], most: int = 10) -> str:
    """How many kernels keep something in memory of their own, and which keep most."""
    kernels = sorted(set(found), key=lambda usage: (-usage.stack, -usage.stores, usage.kernel))
    spilling = [usage for usage in kernels if usage.stores]
    kept = sum(usage.stack > 0 for usage in kernels)
    head = f"{len(kernels)} kernels were compiled now: {kept} with a stack, {len(spilling)} with spills"
    return "\n".join([head, *(f"  {usage}" for usage in kernels[:most] if usage.stack)])
