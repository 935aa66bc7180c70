"""C++ text of the helpers of vector code: types of 8 lanes for AVX2, of 16 for AVX-512, and what C++ has no
operator for.  There are half as many lanes where threads compute with float64.

A mask is a vector of integers, 0 where a lane is off and -1 where it is on.  The float64 sums of lanes of
float32 are two vectors: one that is wider than those of the processor would stay in memory.
"""

import re
from collections.abc import Iterable, Mapping

from kernelab.codegen.cpp import spelling
from kernelab.data_classes import dataclass
from kernelab.lang.ops import Op
from kernelab.lang.types import (
    Scalar,
    bool_,
    float32,
    float64,
    int8,
    int16,
    int32,
    uint8,
    uint16,
    uint32,
)

SMALL = frozenset({int8, int16, uint8, uint16})
"""The integers that lanes of 32 bits hold: converted by vectors; all else each lane does by itself."""

VECTORS: Mapping[Scalar, str] = {
    float32: "vf",
    float64: "vw",
    uint32: "vu",
    **dict.fromkeys((int32, bool_, *SMALL), "vi"),
}
"""The vector type of a scalar that vector code computes with; truth values are masks."""

_NAMES = """
vf vi vu vd vfu viu vuu vdu lane lanes iota on splat truth any bits fetch put gather scatter root rounded_to
magnitude signed_as first_on last_on sum_of fold most_of left at row rest tail done code bail INLINE
lane_extent start release vh low high narrowed addend smaller larger within inner_from inner_upto stream sums
vih vuh shifted_left shifted_right rounded_down truncated rounded_away whole quotient_of quotient remainder
is_far_apart int_of unsigned_of vw vwu vl mask_32 mask_64 fetch_64 gather_64 widened are_fields are_all
"""

NAMES = frozenset(_NAMES.split())
"""The names that vector code reserves."""

_TYPES = """\
typedef float vf __attribute__((vector_size({bytes})));
typedef int vi __attribute__((vector_size({bytes})));
typedef unsigned vu __attribute__((vector_size({bytes})));
typedef double vd __attribute__((vector_size({bytes})));
typedef double vdu __attribute__((vector_size({bytes}), aligned(8), may_alias));
typedef float vh __attribute__((vector_size({half})));
typedef int vih __attribute__((vector_size({half})));
typedef unsigned vuh __attribute__((vector_size({half})));
typedef float vfu __attribute__((vector_size({bytes}), aligned(4), may_alias));
typedef int viu __attribute__((vector_size({bytes}), aligned(4), may_alias));
typedef unsigned vuu __attribute__((vector_size({bytes}), aligned(4), may_alias));
#define INLINE __attribute__((always_inline)) static inline
static const vi iota = {{{iota}}}, on = vi{{}} - 1;
INLINE vf splat(float x) {{ return vf{{{x}}}; }}
INLINE vi splat(int x) {{ return vi{{{x}}}; }}
INLINE vu splat(unsigned x) {{ return vu{{{x}}}; }}
INLINE vi truth(bool x) {{ return splat(x ? -1 : 0); }}
"""

_AVX512 = """\
INLINE unsigned bits(vi mask) { return (unsigned short)__builtin_ia32_cvtd2mask512(mask); }
INLINE vf fetch(const char* p, vi mask) {
  return __builtin_ia32_loadups512_mask((const float*)p, vf{}, bits(mask));
}
INLINE void put(char* p, vf x, vi mask) { __builtin_ia32_storeups512_mask((float*)p, x, bits(mask)); }
INLINE vf gather(const char* p, vi offsets, vi mask) {
  return __builtin_ia32_gathersiv16sf(vf{}, p, offsets, bits(mask), 1);
}
INLINE void scatter(char* p, vi offsets, vf x, vi mask) {
  __builtin_ia32_scattersiv16sf(p, bits(mask), offsets, x, 1);
}
INLINE void stream(char* p, vf x) { __builtin_ia32_movntps512((float*)p, x); }
INLINE vd low(vf x) {
  return __builtin_ia32_cvtps2pd512_mask(__builtin_ia32_extractf32x8_mask(x, 0, vh{}, -1), vd{}, -1, 4);
}
INLINE vd high(vf x) {
  return __builtin_ia32_cvtps2pd512_mask(__builtin_ia32_extractf32x8_mask(x, 1, vh{}, -1), vd{}, -1, 4);
}
INLINE vf root(vf x) { return __builtin_ia32_sqrtps512_mask(x, x, -1, 4); }
INLINE vd rounded_down(vd x) { return __builtin_ia32_rndscalepd_mask(x, 9, x, -1, 4); }
INLINE vi truncated(vf x) { return __builtin_ia32_cvttps2dq512_mask(x, vi{}, -1, 4); }
INLINE vi shifted_left(vi x, vi n) { return __builtin_ia32_psllv16si_mask(x, n, x, -1); }
INLINE vi shifted_right(vi x, vi n) { return __builtin_ia32_psrav16si_mask(x, n, x, -1); }
INLINE vu shifted_right(vu x, vu n) { return (vu)__builtin_ia32_psrlv16si_mask((vi)x, (vi)n, (vi)x, -1); }
template <int way> INLINE vf rounded_to(vf x) { return __builtin_ia32_rndscaleps_mask(x, way, x, -1, 4); }
"""

_AVX2 = """\
INLINE unsigned bits(vi mask) {{ return __builtin_ia32_movmskps{size}((vf)mask); }}
INLINE vf fetch(const char* p, vi mask) {{ return __builtin_ia32_maskloadps{size}((const vf*)p, mask); }}
INLINE void put(char* p, vf x, vi mask) {{ __builtin_ia32_maskstoreps{size}((vf*)p, mask, x); }}
INLINE vf gather(const char* p, vi offsets, vi mask) {{
  return __builtin_ia32_gathersiv{width}sf(vf{{}}, (const float*)p, offsets, (vf)mask, 1);
}}
INLINE void scatter(char* p, vi offsets, vf x, vi mask) {{
  for (unsigned left = bits(mask); left; left &= left - 1)
    *(float*)(p + offsets[__builtin_ctz(left)]) = x[__builtin_ctz(left)];
}}
INLINE void stream(char* p, vf x) {{ __builtin_ia32_movntps{size}((float*)p, x); }}
INLINE vf root(vf x) {{ return __builtin_ia32_sqrtps{size}(x); }}
INLINE vd rounded_down(vd x) {{ return __builtin_ia32_roundpd{size}(x, 9); }}
INLINE vi truncated(vf x) {{ return __builtin_ia32_cvttps2dq{size}(x); }}
INLINE vi shifted_left(vi x, vi n) {{ return (vi)__builtin_ia32_psllv{width}si(x, n); }}
INLINE vi shifted_right(vi x, vi n) {{ return (vi)__builtin_ia32_psrav{width}si(x, n); }}
INLINE vu shifted_right(vu x, vu n) {{ return (vu)__builtin_ia32_psrlv{width}si((vi)x, (vi)n); }}
template <int way> INLINE vf rounded_to(vf x) {{ return __builtin_ia32_roundps{size}(x, way); }}
"""

_HALVES_OF_8 = """\
INLINE vd low(vf x) { return __builtin_ia32_cvtps2pd256(__builtin_ia32_vextractf128_ps256(x, 0)); }
INLINE vd high(vf x) { return __builtin_ia32_cvtps2pd256(__builtin_ia32_vextractf128_ps256(x, 1)); }
"""

_HALVES_OF_4 = """\
INLINE vd low(vf x) { return vd{x[0], x[1]}; }
INLINE vd high(vf x) { return vd{x[2], x[3]}; }
"""

_COMMON = """\
INLINE long long smaller(long long a, long long b) { return a < b ? a : b; }
INLINE long long larger(long long a, long long b) { return a > b ? a : b; }
template <int N> static bool are_fields(long long distance, int mine, int its, const long long (&steps)[N]) {
  long long period = 0;
  for (long long step : steps)
    while (step) {
      const long long rest = period % step;
      period = step, step = rest;
    }
  if (period < 0) period = -period;
  if (period == 0) return false;
  distance %= period;
  if (distance < 0) distance += period;
  return distance >= mine && distance + its <= period;
}
INLINE bool any(vi mask) { return bits(mask) != 0; }
INLINE int first_on(vi mask) { return __builtin_ctz(bits(mask)); }
INLINE int last_on(vi mask) { return 31 - __builtin_clz(bits(mask)); }
INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf signed_as(vf x, vf y) { return (vf)(((vi)x & 0x7fffffff) | ((vi)y & ~0x7fffffff)); }
INLINE vf rounded_away(vf x) {
  const vf whole = rounded_to<11>(x);
  return signed_as(magnitude(x - whole) >= 0.5f ? magnitude(whole) + 1.0f : whole, x);
}
INLINE vi int_of(vf x) { return x >= 0x1p31f ? splat(0x7fffffff) : x == x ? truncated(x) : vi{}; }
INLINE vu unsigned_of(vf x) {
  const vu low = (vu)truncated(x), high = (vu)truncated(x - 0x1p31f) ^ 0x80000000u;
  return x >= 0x1p32f ? ~vu{} : x >= 0x1p31f ? high : x > 0 ? low : vu{};
}
INLINE vu shifted_left(vu x, vu n) { return (vu)shifted_left((vi)x, (vi)n); }
"""

_DIVISION = """template <class V, class H> INLINE V quotient_of(V x, V y) {
  union { V whole; H halves[2]; } a = {x}, b = {y}, c;
  for (int k = 0; k < 2; ++k) {
    const vd exact = __builtin_convertvector(a.halves[k], vd) / __builtin_convertvector(b.halves[k], vd);
    c.halves[k] = __builtin_convertvector(rounded_down(exact), H);
  }
  return c.whole;
}
INLINE vi quotient(vi x, vi y) { return quotient_of<vi, vih>(x, y); }
INLINE vu quotient(vu x, vu y) { return quotient_of<vu, vuh>(x, y); }
template <class V> INLINE V remainder(V x, V y) { return x - quotient(x, y) * y; }
INLINE bool is_far_apart(int first, int n) { return n > 16 && n < 0x7ffffff0 && first < 0x7ffffff0; }
INLINE vi quotient(int first, int n) {
  if (!is_far_apart(first, n)) return quotient(first + iota, splat(n));
  const int whole = first / n - (first % n < 0);
  return whole - (first - whole * n + iota >= n);
}
INLINE vi remainder(int first, int n) {
  if (!is_far_apart(first, n)) return remainder(first + iota, splat(n));
  const vi rest = first % n + (first % n < 0 ? n : 0) + iota;
  return rest >= n ? rest - n : rest;
}
"""
"""A float64 tells the quotient of two integers of 32 bits from the next whole number.

Where lanes follow one another, from `first` on, their quotient is that of the first, or one more.
"""

_REDUCTIONS = """\
template <class V> INLINE auto sum_of(V x) {{
{halves}  return x[0];
}}
static double fold(vd x, vd y) {{
  double sum = 0.0;
  for (int k = 0; k < {width} / 2; ++k) sum += x[k];
  for (int k = 0; k < {width} / 2; ++k) sum += y[k];
  return sum;
}}
static vf narrowed(vd x, vd y) {{
  union {{ vh halves[2]; vf whole; }} both;
  both.halves[0] = __builtin_convertvector(x, vh), both.halves[1] = __builtin_convertvector(y, vh);
  return both.whole;
}}
INLINE bool are_all(vi mask) {{ return bits(mask) == {all}; }}
template <class T> INLINE vi widened(const char* p) {{
  typedef T small __attribute__((vector_size({width} * sizeof(T)), aligned(1), may_alias));
  return __builtin_convertvector(*(const small*)p, vi);
}}
template <class V> static int most_of(V x, vi mask) {{
  int most = 0;
  for (int k = 0; k < {width}; ++k)
    if (mask[k] && (int)x[k] > most) most = (int)x[k];
  return most;
}}
"""

_FLOAT64 = """\
typedef double vw __attribute__((vector_size({register})));
typedef double vwu __attribute__((vector_size({register}), aligned(8), may_alias));
typedef long long vl __attribute__((vector_size({register})));
INLINE vw splat(double x) {{ return vw{{{x}}}; }}
INLINE vl mask_64(vi mask) {{ return __builtin_convertvector(mask, vl); }}
INLINE vi mask_32(vl mask) {{ return __builtin_convertvector(mask, vi); }}
INLINE vw magnitude(vw x) {{ return (vw)((vl)x & 0x7fffffffffffffffLL); }}
INLINE vw signed_as(vw x, vw y) {{ return (vw)((vl)magnitude(x) | ((vl)y & ~0x7fffffffffffffffLL)); }}
INLINE vi truncated(vw x) {{ return __builtin_convertvector(x, vi); }}
INLINE vi int_of(vw x) {{
  return mask_32(x >= 0x1p31) ? splat(0x7fffffff) : mask_32(x == x) ? truncated(x) : vi{{}};
}}
INLINE vu unsigned_of(vw x) {{
  const vu low = (vu)truncated(x), high = (vu)truncated(x - 0x1p31) ^ 0x80000000u;
  return mask_32(x >= 0x1p32) ? ~vu{{}} : mask_32(x >= 0x1p31) ? high : mask_32(x > 0) ? low : vu{{}};
}}
INLINE double sum_of(vw x) {{
{wide_halves}  return x[0];
}}
"""

_FLOAT64_OF_512 = """\
INLINE vw fetch_64(const char* p, vi mask) {
  return __builtin_ia32_loadupd512_mask((const double*)p, vw{}, bits(mask));
}
INLINE void put(char* p, vw x, vi mask) { __builtin_ia32_storeupd512_mask((double*)p, x, bits(mask)); }
INLINE vw gather_64(const char* p, vi offsets, vi mask) {
  return __builtin_ia32_gathersiv8df(vw{}, p, offsets, bits(mask), 1);
}
INLINE void scatter(char* p, vi offsets, vw x, vi mask) {
  __builtin_ia32_scattersiv8df(p, bits(mask), offsets, x, 1);
}
INLINE void stream(char* p, vw x) { __builtin_ia32_movntpd512((double*)p, x); }
INLINE vw root(vw x) { return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4); }
template <int way> INLINE vw rounded_to(vw x) { return __builtin_ia32_rndscalepd_mask(x, way, x, -1, 4); }
"""

_FLOAT64_OF_256 = """\
INLINE vw fetch_64(const char* p, vi mask) {
  return __builtin_ia32_maskloadpd256((const vw*)p, mask_64(mask));
}
INLINE void put(char* p, vw x, vi mask) { __builtin_ia32_maskstorepd256((vw*)p, mask_64(mask), x); }
INLINE vw gather_64(const char* p, vi offsets, vi mask) {
  return __builtin_ia32_gathersiv4df(vw{}, (const double*)p, offsets, (vw)mask_64(mask), 1);
}
INLINE void scatter(char* p, vi offsets, vw x, vi mask) {
  for (unsigned left = bits(mask); left; left &= left - 1)
    *(double*)(p + offsets[__builtin_ctz(left)]) = x[__builtin_ctz(left)];
}
INLINE void stream(char* p, vw x) { __builtin_ia32_movntpd256((double*)p, x); }
INLINE vw root(vw x) { return __builtin_ia32_sqrtpd256(x); }
template <int way> INLINE vw rounded_to(vw x) { return __builtin_ia32_roundpd256(x, way); }
"""

_ROUNDED_AWAY = """\
INLINE vw rounded_away(vw x) {
  const vw whole = rounded_to<11>(x);
  return signed_as(magnitude(x - whole) >= 0.5 ? magnitude(whole) + 1.0 : whole, x);
}
"""

COMPONENTS = (2, 3, 4)
"""The numbers of components of vectors that are read together, where they lie side by side."""

_FUNCTIONS = """
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 exp10 expm1 log log2 log10 log1p cbrt
erf erfc pow atan2 hypot
"""

FUNCTIONS = frozenset(_FUNCTIONS.split())
"""The functions of libmvec that vector code calls, where the library has them."""

_BINARY = frozenset({"pow", "atan2", "hypot"})


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
        called = {name for line in lines for name in re.findall(r"(?:\b_ZGV|components_)\w+(?=\()", line)}
        counts = [count for count in COMPONENTS if f"components_{count}" in called]
        parts = [line for count in counts for line in self._components(count)]
        return [
            *self.helpers.splitlines(),
            *parts,
            *(_declaration(name) for name in sorted(called) if name.startswith("_ZGV")),
        ]

    def _components(self, count: int) -> list[str]:
        """The helpers that read vectors of some components side by side, one for each lane, and write them.

        memory     x0 y0 z0 x1 y1 z1 ..       read as `count` vectors, in order
        returned   x0 x1 ..  y0 y1 ..  z0 z1 ..
        """
        width, texts = self.width, []
        for k in range(count):
            place = [divmod(count * lane + k, width) for lane in range(width)]
            text = "all[0]"
            for part in range(1, count):
                taken = [
                    width + at if of == part else at if part == 1 else lane
                    for lane, (of, at) in enumerate(place)
                ]
                text = f"__builtin_shuffle({text}, all[{part}], vi{{{', '.join(map(str, taken))}}})"
            texts.append(text)
        return [
            f"struct Components{count} {{ vf at[{count}]; }};",
            f"INLINE Components{count} components_{count}(const char* p) {{",
            "  const vfu* const all = (const vfu*)p;",
            f"  return {{{{{', '.join(texts)}}}}};",
            "}",
            f"INLINE Components{count} components_{count}(const char* p, vi offsets, vi mask) {{",
            f"  if (are_all(mask)) return components_{count}(p);",
            f"  return {{{{{', '.join(f'gather(p + {4 * k}, offsets, mask)' for k in range(count))}}}}};",
            "}",
            *self._put_components(count),
        ]

    def _put_components(self, count: int) -> list[str]:
        """The helper that writes them back."""
        width, lines = self.width, []
        for part in range(count):
            place = [divmod(part * width + at, count) for at in range(width)]
            text = "x0"
            for k in range(1, count):
                kept = [lane if k == 1 else at for at, (lane, _) in enumerate(place)]
                taken = [width + lane if of == k else kept[at] for at, (lane, of) in enumerate(place)]
                text = f"__builtin_shuffle({text}, x{k}, vi{{{', '.join(map(str, taken))}}})"
            lines.append(f"  ((vfu*)p)[{part}] = {text};")
        params = ", ".join(f"vf x{k}" for k in range(count))
        given = ", ".join(f"x{k}" for k in range(count))
        return [
            f"INLINE void put_components_{count}(char* p, {params}) {{",
            *lines,
            "}",
            f"INLINE void put_components_{count}(char* p, vi offsets, vi mask, {params}) {{",
            f"  if (are_all(mask)) return put_components_{count}(p, {given});",
            *(f"  scatter(p + {4 * k}, offsets, x{k}, mask);" for k in range(count)),
            "}",
        ]

    @property
    def helpers(self) -> str:
        """The text of all helpers."""
        steps = [k for k in (8, 4, 2, 1) if k < self.width]
        fields = {
            "bytes": 4 * self.width,
            "half": 2 * self.width,
            "width": self.width,
            "all": (1 << self.width) - 1,
            "size": "256" if self.width == 8 else "",
            "register": self.register,
            "halves": "".join(f"  x += __builtin_shuffle(x, iota ^ {k});\n" for k in steps),
            "wide_halves": "".join(f"  x += __builtin_shuffle(x, mask_64(iota ^ {k}));\n" for k in steps),
            "iota": ", ".join(map(str, range(self.width))),
            "x": ", ".join(["x"] * self.width),
        }
        texts = [_TYPES.format_map(fields)]
        if self.width == 16:
            texts.append(_AVX512)
        else:
            texts += [_AVX2.format_map(fields), _HALVES_OF_8 if self.width == 8 else _HALVES_OF_4]
        texts += [_COMMON, _DIVISION, _REDUCTIONS.format_map(fields)]
        if self.doubles:
            special = _FLOAT64_OF_512 if self.register == 64 else _FLOAT64_OF_256
            texts += [_FLOAT64.format_map(fields), special, _ROUNDED_AWAY]
        return "".join(texts)

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
        if op.cpp == "({a} != 0)" and types[0] == bool_:
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
