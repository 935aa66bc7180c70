"""The console script: ``kernelab doctor``.

Knows arguments and exit codes; what it prints is made elsewhere.
"""

import argparse
import sys
from collections.abc import Sequence

from kernelab import __version__, doctor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in ``arguments`` (default: the process's own) and return its exit code.

    The doctor prints what was found; 0 where kernels compile and run on the CPU, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="kernelab", description="Interactive differentiable programming for Jupyter."
    )
    parser.add_argument("--version", action="version", version=f"kernelab {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    commands.add_parser("doctor", help="what was found on this machine, and what to do about what is missing")
    parser.parse_args(arguments)
    findings = doctor.examine()
    print(doctor.show(findings))
    return 0 if doctor.cpu_works(findings) else 1


if __name__ == "__main__":
    sys.exit(main())
