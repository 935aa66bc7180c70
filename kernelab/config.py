"""Settings, as attributes of this module: ``kl.config.verify_autograd_array_access = True``.

verify_autograd_array_access    tapes warn of overwritten arrays and go on with the new values, as Warp's do,
                                instead of saving the old ones (`Tape(overwrite=...)` says so for one tape)
loop_memory                     how many bytes a thread of an adjoint may save for its loops, 64 MiB at first;
                                beyond that loops keep checkpoints and run again between them; 0 is any number
"""

import sys
from types import ModuleType

import numpy as np

from kernelab.autodiff.hazards import DEFAULT_POLICY
from kernelab.runtime.storage import LOOP_MEMORY


class _Config(ModuleType):
    @property
    def verify_autograd_array_access(self) -> bool:
        return DEFAULT_POLICY.get() == "warn"

    @verify_autograd_array_access.setter
    def verify_autograd_array_access(self, wanted: bool) -> None:
        DEFAULT_POLICY.set("warn" if wanted else "save")

    @property
    def loop_memory(self) -> int:
        return LOOP_MEMORY.get()

    @loop_memory.setter
    def loop_memory(self, wanted: int) -> None:
        if not isinstance(wanted, int | np.integer) or isinstance(wanted, bool) or wanted < 0:
            raise ValueError(f"loop_memory is a number of bytes, or 0 for any number, not {wanted!r}")
        LOOP_MEMORY.set(int(wanted))

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in vars(_Config):
            known = ", ".join(setting for setting in vars(_Config) if not setting.startswith("_"))
            raise AttributeError(f"there is no setting {name}; there is {known}", name=name, obj=self)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Config
