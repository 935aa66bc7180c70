"""Operations of vector code: what C++ has for vectors, what a helper does, and the functions of libmvec."""

import re
from collections.abc import Iterable, Mapping

from kernelab.codegen.cpp import spelling
from kernelab.codegen.vectors.vector_helpers import KINDS, components_of, helpers_of
from kernelab.codegen.vectors.vector_rows import columns, rows, rows_of
from kernelab.data_classes import dataclass
from kernelab.lang.ops import Op
from kernelab.lang.types import Scalar, bool_, float32, float64, int8, int16, int32, uint8, uint16, uint32

SMALL = frozenset({int8, int16, uint8, uint16})
"""The integers that lanes of 32 bits hold: converted by vectors; all else each lane does by itself."""

VECTORS: Mapping[Scalar, str] = {
    float32: "vf",
    float64: "vw",
    uint32: "vu",
    **dict.fromkeys((int32, bool_, *SMALL), "vi"),
}
"""The vector type of a scalar that vector code computes with; truth values are masks."""

_FUNCTIONS = """
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 exp10 expm1 log log2 log10 log1p cbrt
erf erfc pow atan2 hypot
"""

FUNCTIONS = frozenset(_FUNCTIONS.split())
"""The functions of libmvec that vector code calls, where the library has them."""

_BINARY = frozenset({"pow", "atan2", "hypot"})


_CALLED = r"\b(?:(?:_ZGV|components_|put_components_|rows_of_)\w+|get_columns)(?=\()"
_BY_ROWS = ("components_apart_", "rows_of_")
_BY_KIND = ("components_", "put_components_", *_BY_ROWS)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vectors of a processor, and the functions that libmvec has for them.

    Vectors of float32 fill a register; with `doubles`, vectors of float64 do, and the others half of one.
    """

    width: int
    doubles: bool = False
    functions: frozenset[tuple[str, Scalar]] = frozenset()

    @property
    def register(self) -> int:
        """The bytes of a register."""
        return self.width * (8 if self.doubles else 4)

    @property
    def vectors(self) -> Mapping[Scalar, str]:
        """The vector types of the scalars that lanes compute with."""
        return {scalar: name for scalar, name in VECTORS.items() if self.doubles or scalar != float64}

    def head(self, lines: Iterable[str]) -> list[str]:
        """The lines that vector code begins with: helpers, and what declares the functions that it calls."""
        called = {name for line in lines for name in re.findall(_CALLED, line)}
        kinds = [kind for kind in KINDS if called.intersection(f"{name}{kind}" for name in _BY_KIND)]
        parts = [line for kind in kinds for line in components_of(kind, self.width)]
        if whole := [kind for kind in kinds if called.intersection(f"{name}{kind}" for name in _BY_ROWS)]:
            texts = [rows(self.width), *(rows_of(int(kind), self.width) for kind in whole)]
            parts += "".join(texts).splitlines()
        if "get_columns" in called:
            parts += columns(self.width).splitlines()
        return [
            *self.helpers.splitlines(),
            *parts,
            *(_declaration(name) for name in sorted(called) if name.startswith("_ZGV")),
        ]

    @property
    def helpers(self) -> str:
        return helpers_of(self.width, self.doubles)

    def symbol(self, function: str, type: Scalar = float32) -> str:
        """The name of a function over vectors in libmvec, by the vector ABI of x86-64."""
        isa = {16: "b", 32: "d", 64: "e"}[self.width * type.bits // 8]
        params, suffix = "vv" if function in _BINARY else "v", "f" if type == float32 else ""
        return f"_ZGV{isa}N{self.width}{params}_{function}{suffix}"

    def operation(self, op: Op, operands: list[str], types: list[Scalar], type: Scalar) -> str | None:
        """An application of an operation to vectors; None where it takes a loop over lanes."""
        assert op.cpp is not None
        if type in SMALL or (not SMALL.isdisjoint(types) and op.cpp != "(({T}){a})"):
            return None
        helper = _HELPERS.get((op.name, types[0]))
        if helper is not None:
            return f"{helper}({', '.join(operands)})"
        fields = {param.name: text for param, text in zip(op.params, operands, strict=True)}
        called = re.fullmatch(r"\{m\}(\w+)\{f\}\((.*)\)", op.cpp)
        if called is not None:
            return self._call(called[1], operands, types)
        if op.cpp == "(({T}){a})":
            return _converted(operands[0], types[0], type)
        if op.cpp == "__builtin_bit_cast({T}, {x})":
            return f"({VECTORS[type]}){operands[0]}"
        if op.name == "rarely" or (op.cpp == "({a} != 0)" and types[0] == bool_):
            return operands[0]
        return _plain(op.cpp, fields, types, type)

    def _call(self, function: str, operands: list[str], types: list[Scalar]) -> str | None:
        type = types[0]
        floats = [_converted(text, t, type) for text, t in zip(operands, types, strict=True)]
        if type not in (float32, float64) or None in floats:
            return None
        texts = [text for text in floats if text is not None]
        if function in _DIRECT:
            return _DIRECT[function].format(*texts)
        is_known = (function, type) in self.functions
        return f"{self.symbol(function, type)}({', '.join(texts)})" if is_known else None


def _declaration(symbol: str) -> str:
    """The declaration of a function of libmvec."""
    type = "vf" if symbol.endswith("f") and symbol.rpartition("_")[2] not in FUNCTIONS else "vw"
    params = f"{type}, {type}" if "vv_" in symbol else type
    return f'extern "C" {type} {symbol}({params});'


_DIRECT = {
    "sqrt": "root({})",
    "fabs": "magnitude({})",
    "copysign": "signed_as({}, {})",
    "floor": "rounded_to<9>({})",
    "ceil": "rounded_to<10>({})",
    "trunc": "rounded_to<11>({})",
    "rint": "rounded_to<8>({})",
    "round": "rounded_away({})",
}
"""Functions that the processor has an instruction for, exact to the last bit."""

_ON_INTEGERS = {
    "shl": "shifted_left",
    "shr": "shifted_right",
    "lshift": "shifted_left",
    "rshift": "shifted_right",
    "floordiv": "quotient",
    "mod": "remainder",
}

_HELPERS = {
    **{(name, type): helper for name, helper in _ON_INTEGERS.items() for type in (int32, uint32)},
    **{("int32", type): "int_of" for type in (float32, float64)},
    **{("uint32", type): "unsigned_of" for type in (float32, float64)},
}
"""The helper for an operation, by its name and the type of its first operand."""

_OPERATORS = re.compile(r"[\s()+\-*/&|^<>=!~?:]*")


def _plain(cpp: str, fields: Mapping[str, str], types: list[Scalar], type: Scalar) -> str | None:
    """A spelling of operators alone, which C++ has for vectors too."""
    zero = f"{VECTORS[types[0]]}{{}}"
    text = re.sub(r"\(\{T\}\)(-?\d)", lambda m: f"splat(({spelling.value_type(type)}){m[1]})", cpp)
    text = re.sub(r"(?<![\w({)-])\b0\b|(?<=\()0\b", zero, text.replace("({T})", ""))
    bare = re.sub(r"\{\w+\}|splat\([^)]*\)-?\d\)|v[fiuw]\{\}", "", text)
    if not _OPERATORS.fullmatch(bare):
        return None
    for (name, operand), of_type in zip(fields.items(), types, strict=True):
        is_mask = of_type == bool_ and float64 in (*types, type)
        text = text.replace(f"{{{name}}}", f"mask_64({operand})" if is_mask else operand)
    return f"mask_32({text})" if type == bool_ and float64 in types else spelling.unwrapped(text)


def _converted(text: str, from_: Scalar, to: Scalar) -> str | None:
    if from_ == to:
        return text
    if from_ == bool_:
        one, test = f"splat(({spelling.value_type(to)})1)", f"mask_64({text})" if to == float64 else text
        return f"({test} ? {one} : {VECTORS[to]}{{}})"
    if to in (float32, float64):
        return f"__builtin_convertvector({text}, {VECTORS[to]})"
    return f"({VECTORS[to]}){text}" if from_ in (int32, uint32, *SMALL) and to in (int32, uint32) else None
