"""Settings, as attributes of this module: ``kl.config.verify_autograd_array_access = True``.

verify_autograd_array_access    tapes warn of overwritten arrays and go on with the new values, as Warp's do,
                                instead of saving the old ones (`Tape(overwrite=...)` says so for one tape)
"""

import sys
from types import ModuleType

from kernelab.autodiff.hazards import DEFAULT_POLICY


class _Config(ModuleType):
    @property
    def verify_autograd_array_access(self) -> bool:
        return DEFAULT_POLICY.get() == "warn"

    @verify_autograd_array_access.setter
    def verify_autograd_array_access(self, wanted: bool) -> None:
        DEFAULT_POLICY.set("warn" if wanted else "save")

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in vars(_Config):
            known = ", ".join(setting for setting in vars(_Config) if not setting.startswith("_"))
            raise AttributeError(f"there is no setting {name}; there is {known}", name=name, obj=self)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Config
