"""From Python text to IR: names, types, promotion, control flow, and every mistake told at its place.

Knows the language and the table of operations; must not know backends, arrays or notebooks.
"""

from kernelab.frontend.anonymous import lower_python
from kernelab.frontend.cell import Definition, Lowered, lower_source, lower_tree
from kernelab.frontend.classes import StructDefinition, struct_of
from kernelab.frontend.custom import attach
from kernelab.frontend.functions import UserFunction
from kernelab.frontend.generics import GenericKernel
from kernelab.frontend.kernels import KernelDefinition
from kernelab.frontend.names import Constant
from kernelab.frontend.overloads import Overloads
from kernelab.frontend.rules import rule_from
from kernelab.frontend.source import file_of, source_of

__all__ = [
    "Constant",
    "Definition",
    "GenericKernel",
    "KernelDefinition",
    "Lowered",
    "Overloads",
    "StructDefinition",
    "UserFunction",
    "attach",
    "file_of",
    "lower_python",
    "lower_source",
    "lower_tree",
    "rule_from",
    "source_of",
    "struct_of",
]
