"""The patterns that annotate the operands of records: which types an operand may have.

Equal names within a signature mean the same type or length: `dot(a: VecN, b: VecN)` takes two vectors of
one length and one scalar type.  `Num...` allows integers, `Any...` also truth values.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from kernelab.lang.ops import KindPattern, MatPattern, ScalarPattern, VecPattern
from kernelab.lang.types import Quat, Transform, bool_, int32

if TYPE_CHECKING:
    # To a type checker a record's operands are anything; the patterns below are what the table reads.
    Float: TypeAlias = Any
    Signed: TypeAlias = Any
    Unsigned: TypeAlias = Any
    Int: TypeAlias = Any
    Whole: TypeAlias = Any
    Number: TypeAlias = Any
    Element: TypeAlias = Any
    Bool: TypeAlias = Any
    Index: TypeAlias = Any
    VecN: TypeAlias = Any
    VecM: TypeAlias = Any
    Vec3: TypeAlias = Any
    NumVecN: TypeAlias = Any
    NumVec3: TypeAlias = Any
    AnyVecN: TypeAlias = Any
    MatNN: TypeAlias = Any
    MatNM: TypeAlias = Any
    MatMN: TypeAlias = Any
    MatMK: TypeAlias = Any
    MatNK: TypeAlias = Any
    Mat33: TypeAlias = Any
    NumVecM: TypeAlias = Any
    NumMatNM: TypeAlias = Any
    NumMatMN: TypeAlias = Any
    NumMatMK: TypeAlias = Any
    NumMatNK: TypeAlias = Any
    AnyVecM: TypeAlias = Any
    AnyMatNM: TypeAlias = Any
    QuatF: TypeAlias = Any
    TransformF: TypeAlias = Any
    Vec2: TypeAlias = Any
    Vec4: TypeAlias = Any
    Vec6: TypeAlias = Any
    Vec8: TypeAlias = Any
    Vec10: TypeAlias = Any
    Vec12: TypeAlias = Any
    Vec18: TypeAlias = Any
    Vec21: TypeAlias = Any
    Mat22: TypeAlias = Any
    Mat44: TypeAlias = Any
    Mat66: TypeAlias = Any
    IntVecN: TypeAlias = Any
    IntMatNM: TypeAlias = Any
    NumMatNN: TypeAlias = Any
else:
    Float = ScalarPattern("Float", ("float",))
    Signed = ScalarPattern("Signed", ("int",))
    Unsigned = ScalarPattern("Unsigned", ("uint",))
    Int = ScalarPattern("Int", ("int", "uint"))
    Whole = ScalarPattern("Whole", ("bool", "int", "uint"))
    Number = ScalarPattern("Number", ("int", "uint", "float"))
    Element = ScalarPattern("Element", ("bool", "int", "uint", "float"))
    Bool = bool_
    Index = int32
    VecN = VecPattern(Float, "n")
    VecM = VecPattern(Float, "m")
    Vec3 = VecPattern(Float, 3)
    NumVecN = VecPattern(Number, "n")
    NumVec3 = VecPattern(Number, 3)
    AnyVecN = VecPattern(Element, "n")
    MatNN = MatPattern(Float, "n", "n")
    MatNM = MatPattern(Float, "n", "m")
    MatMN = MatPattern(Float, "m", "n")
    MatMK = MatPattern(Float, "m", "k")
    MatNK = MatPattern(Float, "n", "k")
    Mat33 = MatPattern(Float, 3, 3)
    NumVecM = VecPattern(Number, "m")
    NumMatNM = MatPattern(Number, "n", "m")
    NumMatMN = MatPattern(Number, "m", "n")
    NumMatMK = MatPattern(Number, "m", "k")
    NumMatNK = MatPattern(Number, "n", "k")
    AnyVecM = VecPattern(Element, "m")
    AnyMatNM = MatPattern(Element, "n", "m")
    QuatF = KindPattern(Quat, Float)
    TransformF = KindPattern(Transform, Float)
    Vec2 = VecPattern(Float, 2)
    Vec4 = VecPattern(Float, 4)
    Vec6 = VecPattern(Float, 6)
    Vec8, Vec10, Vec12, Vec18, Vec21 = (VecPattern(Float, n) for n in (8, 10, 12, 18, 21))
    Mat22 = MatPattern(Float, 2, 2)
    Mat44 = MatPattern(Float, 4, 4)
    Mat66 = MatPattern(Float, 6, 6)
    IntVecN = VecPattern(Int, "n")
    IntMatNM = MatPattern(Int, "n", "m")
    NumMatNN = MatPattern(Number, "n", "n")
