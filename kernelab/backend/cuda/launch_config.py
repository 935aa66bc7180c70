"""The launch configuration of a CUDA device: threads per block, most blocks, stream.

Knows no device.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from kernelab.codegen.cpp.accumulator_helpers import MOST_THREADS
from kernelab.errors import Diagnostic, LaunchError

BLOCK = 256
"""The threads of a block where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """The threads of a block, and how many blocks there are at most; 0 is as many as serve the device.

    With fewer threads than the grid has, each of them runs several of the grid's.
    """

    threads: int = BLOCK
    blocks: int = 0


DEFAULT_CONFIG = LaunchConfig()

LAUNCH_CONFIG: ContextVar[LaunchConfig] = ContextVar("kernelab launch configuration", default=DEFAULT_CONFIG)

NO_STREAMS: Mapping[str, int] = {}

STREAMS: ContextVar[Mapping[str, int]] = ContextVar("kernelab streams", default=NO_STREAMS)
"""The stream of each device in which launches run, by its name; the device's own where there is none."""


def current_stream(device: str) -> int:
    """The stream of a device in which launches run now."""
    return STREAMS.get().get(device, 0)


def config_of(block_dim: int, max_blocks: int) -> LaunchConfig:
    """The configuration that a launch asks for, `DEFAULT_CONFIG` itself where it is that.

    Raises LaunchError where no device can run it.
    """
    if block_dim == BLOCK and not max_blocks:
        return DEFAULT_CONFIG
    if not _is_int(block_dim) or not 1 <= block_dim <= MOST_THREADS:
        message = f"a block cannot have {block_dim!r} threads"
        hint = f"block_dim is an int from 1 to {MOST_THREADS}, {BLOCK} unless given"
        raise LaunchError(Diagnostic(message, code="block_dim", hint=hint))
    if not _is_int(max_blocks):
        message = f"max_blocks cannot be {max_blocks!r}"
        raise LaunchError(Diagnostic(message, code="max_blocks", hint="pass an int; 0 sets no limit"))
    return LaunchConfig(int(block_dim), max(int(max_blocks), 0))


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)
