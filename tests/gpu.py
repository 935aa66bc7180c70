"""``make test-gpu``: the tests of devices on the first GPU of this machine, in place of the simulated device.

    python -m tests.gpu [what pytest takes]

What is skipped is listed at the end.  The exit status is 1 where there is no GPU: nothing was tested then.
"""

import os
import sys
from collections.abc import Sequence

import pytest

from kernelab.backend import nvidia
from kernelab.errors import KernelError
from tests.support.hardware import VARIABLE

FILES = ("tests/backend/test_cuda.py", "tests/backend/test_nvidia.py", "tests/runtime/test_devices.py")
REST = "NOT ON THE GPU: all other files of tests/, which run on the CPU only (make test)"


def main(arguments: Sequence[str]) -> int:
    try:
        driver = nvidia.open_driver(0)
    except KernelError as problem:
        print(f"NOT RUN: {problem}")
        return 1
    print(f"on {driver.name} ({driver.architecture}, {driver.processors} processors): {', '.join(FILES)}")
    os.environ[VARIABLE] = "1"
    status = pytest.main([*FILES, "-rs", *arguments])
    print(REST)
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
