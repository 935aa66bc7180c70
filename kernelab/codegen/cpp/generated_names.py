"""Names in generated C++, derived from the user's and distinct from those of C++ and its libraries."""

import re
import unicodedata
from collections.abc import Collection, Sequence

from kernelab.codegen.cpp import helpers
from kernelab.codegen.cpp.spelling import device_helpers, half_helpers
from kernelab.lang import show
from kernelab.lang.ir import Var

KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
while xor xor_eq linux unix main NULL INFINITY NAN
"""

MATHEMATICS = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx erfinv exp
exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan j0 j1 jn ldexp
lgamma llrint llround log log10 log1p log2 logb lrint lround max min modf nan nearbyint nextafter norm norm3d
norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm round rsqrt scalbln scalbn signbit sin
sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn
"""

DEVICE = """
blockIdx blockDim gridDim threadIdx warpSize atomicAdd atomicCAS atomicExch atomicMax atomicMin clock clock64
printf malloc free memcpy memset assert assertion dim3 int2 int3 int4 float2 float3 float4 double2 half
__half __float_as_uint __uint_as_float __float_as_int __double_as_longlong __ldg
"""

OURS = """
i64 u64 args given status budget thread turn total start release rest width end base top limit
poll fail fail_index outside room more from16 to16 round16 odd32 add16 add8 realloc free say said
ahead already warp_add32 settle16 settle32 fromb16 tob16 roundb16 addb16 settleb16 odd32i
calloc beside widen32 widen16 widenb16 spread32 spread16 spreadb16
Sums sums_of settle_all32 settle_all16 settle_allb16
"""

RESERVED = frozenset(
    [*KEYWORDS.split(), *DEVICE.split(), *OURS.split()]
    + [*device_helpers(), *half_helpers(), *helpers.helpers("")]
    + [name + suffix for name in MATHEMATICS.split() for suffix in ("", "f", "l")]
)


def identifier(hint: str) -> str:
    """`hint` as letters of the basic alphabet: ``α`` becomes ``alpha``; "t" where nothing is left."""
    text = "".join(character if character.isascii() else _spelled(character) for character in hint)
    text = re.sub(r"\W", "_", text).strip("_")
    text = re.sub(r"__+", "_", text)
    return f"t{text}" if not text or text[0].isdigit() else text


def _spelled(character: str) -> str:
    words = unicodedata.name(character, f"u{ord(character):04x}").split()
    return words[-1].lower()


class Names(show.Names):
    """The names of Vars, and others, in generated C++; `more` are taken as well."""

    def __init__(self, more: Collection[str] = ()) -> None:
        super().__init__(RESERVED | {*more})

    def family(self, var: Var, suffixes: Sequence[str]) -> str:
        """Name a Var such that its name followed by each suffix belongs to it alone too."""
        hint = name = identifier(var.hint or "t")
        number = 0
        while not self._taken.isdisjoint(members := {name, *(name + suffix for suffix in suffixes)}):
            number += 1
            name = f"{hint}_{number}"
        self._taken |= members
        self._of[var] = name
        return name

    def alias(self, var: Var, name: str) -> None:
        """From now on `var` is called by a name that was given out already."""
        self._of[var] = name

    def fresh(self, hint: str) -> str:
        """A name nobody has, as C++ can spell it."""
        return super().fresh(identifier(hint))
