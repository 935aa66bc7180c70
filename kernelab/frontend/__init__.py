"""Lowering of Python text to IR: names, types, promotion, control flow, and errors at their source positions.

Knows the language and the table of operations; must not know backends, arrays or notebooks.
"""

from kernelab.frontend.definitions.cell import (
    Definition,
    Lowered,
    errors_of,
    lower_python,
    lower_source,
    lower_tree,
)
from kernelab.frontend.definitions.custom_derivatives import attach, rule_from
from kernelab.frontend.definitions.functions import Overloads, UserFunction
from kernelab.frontend.definitions.kernels import GenericKernel, KernelDefinition, one_thread, result_types
from kernelab.frontend.meaning.annotations import StructDefinition, struct_of
from kernelab.frontend.meaning.name_lookup import Constant
from kernelab.frontend.meaning.source import annotations_of, file_of, source_of

__all__ = [
    "Constant",
    "Definition",
    "GenericKernel",
    "KernelDefinition",
    "Lowered",
    "Overloads",
    "StructDefinition",
    "UserFunction",
    "annotations_of",
    "attach",
    "errors_of",
    "file_of",
    "lower_python",
    "lower_source",
    "lower_tree",
    "one_thread",
    "result_types",
    "rule_from",
    "source_of",
    "struct_of",
]
