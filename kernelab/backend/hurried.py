"""A function of a device that was built quickly, and runs so until a better build is there.

The two compute the same: neither contracts nor reorders arithmetic.  Knows the driver's protocol.
"""

import warnings

from kernelab.backend.background import Pending
from kernelab.backend.driver import Driver
from kernelab.errors import BuildError, Diagnostic, KernelWarning


class Hurried:
    """A loaded function of machine code, and the better code of it that is under way, if any."""

    __slots__ = ("_better", "_driver", "_function", "_symbol")

    def __init__(self, driver: Driver, code: bytes, symbol: str, better: Pending | None = None) -> None:
        self._driver = driver
        self._symbol = symbol
        self._better = better
        self._function = driver.load(code, symbol)

    def now(self, *, may_load: bool) -> object:
        """The best function that there is; with `may_load`, better code that has come is loaded first.

        Where there will be none, a warning says why, once.
        """
        better = self._better
        if better is None or not better.is_done or not may_load:
            return self._function
        self._better = None
        code, problem = better.take()
        if problem is None:
            try:
                self._function = self._driver.load(code, self._symbol)
            except BuildError as refused:
                problem = refused
        if problem is not None:
            self._tell(problem)
        return self._function

    def _tell(self, problem: BaseException) -> None:
        message = f"`{self._symbol}` could not be built with full optimisation: {problem}"
        hint = "it goes on as it was built at first, with the same results, slower"
        shown = Diagnostic(message, None, "background", "warning", hint=hint).render()
        warnings.warn(shown, KernelWarning, stacklevel=2)
