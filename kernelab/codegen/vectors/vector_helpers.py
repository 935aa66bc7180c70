"""C++ text of the helpers of vector code: types of 8 lanes for AVX2, of 16 for AVX-512, and what C++ has no
operator for.  There are half as many lanes where threads compute with float64.

A mask is a vector of integers, 0 where a lane is off and -1 where it is on.  The float64 sums of lanes of
float32 are two vectors: one that is wider than those of the processor would stay in memory.
"""

from collections.abc import Sequence

from kernelab.codegen.vectors import vector_rows

_NAMES = """
vf vi vu vd vfu viu vuu vdu lane lanes iota on splat truth any bits fetch put gather scatter root rounded_to
magnitude signed_as first_on last_on sum_of fold most_of left at row rest tail done code bail INLINE
lane_extent start release vh low high narrowed addend smaller larger within inner_from inner_upto stream sums
vih vuh shifted_left shifted_right rounded_down truncated rounded_away whole quotient_of quotient remainder
passes_once int_of unsigned_of vw vwu vl mask_32 mask_64 fetch_64 gather_64 widened are_fields are_all
old
"""

KINDS = tuple(f"{count}{suffix}" for count in (2, 3, 4) for suffix in ("", "_64"))
"""The kinds of vectors whose components are read and written together, where they lie side by side."""

_PARTS = ("Components", "components_", "put_components_", "components_apart_", "rows_of_")
_OF_COMPONENTS = (f"{name}{kind}" for kind in KINDS for name in _PARTS)

NAMES = frozenset((*_NAMES.split(), *vector_rows.NAMES.split(), *_OF_COMPONENTS))
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

_MEMORY_OF_512 = """\
INLINE {v} fetch{_64}(const char* p, vi mask) {{
  return __builtin_ia32_loadu{s}512_mask((const {type}*)p, {v}{{}}, bits(mask));
}}
INLINE void put(char* p, {v} x, vi mask) {{ __builtin_ia32_storeu{s}512_mask(({type}*)p, x, bits(mask)); }}
INLINE {v} gather{_64}(const char* p, vi offsets, vi mask) {{
  return __builtin_ia32_gathersiv{lanes}({v}{{}}, p, offsets, bits(mask), 1);
}}
INLINE void scatter(char* p, vi offsets, {v} x, vi mask) {{
  __builtin_ia32_scattersiv{lanes}(p, bits(mask), offsets, x, 1);
}}
INLINE void stream(char* p, {v} x) {{ __builtin_ia32_movnt{s}512(({type}*)p, x); }}
INLINE {v} root({v} x) {{ return __builtin_ia32_sqrt{s}512_mask(x, x, -1, 4); }}
template <int way> INLINE {v} rounded_to({v} x) {{
  return __builtin_ia32_rndscale{s}_mask(x, way, x, -1, 4);
}}
"""

_MEMORY_OF_256 = """\
INLINE {v} fetch{_64}(const char* p, vi mask) {{
  return __builtin_ia32_maskload{s}{size}((const {v}*)p, {mask});
}}
INLINE void put(char* p, {v} x, vi mask) {{ __builtin_ia32_maskstore{s}{size}(({v}*)p, {mask}, x); }}
INLINE {v} gather{_64}(const char* p, vi offsets, vi mask) {{
  return __builtin_ia32_gathersiv{lanes}({v}{{}}, (const {type}*)p, offsets, ({v}){mask}, 1);
}}
INLINE void scatter(char* p, vi offsets, {v} x, vi mask) {{
  for (unsigned left = bits(mask); left; left &= left - 1)
    *({type}*)(p + offsets[__builtin_ctz(left)]) = x[__builtin_ctz(left)];
}}
INLINE void stream(char* p, {v} x) {{ __builtin_ia32_movnt{s}{size}(({type}*)p, x); }}
INLINE {v} root({v} x) {{ return __builtin_ia32_sqrt{s}{size}(x); }}
template <int way> INLINE {v} rounded_to({v} x) {{ return __builtin_ia32_round{s}{size}(x, way); }}
"""

_ROUNDED = """\
INLINE {v} rounded_away({v} x) {{
  const {v} whole = rounded_to<11>(x);
  return signed_as(magnitude(x - whole) >= 0.5{f} ? magnitude(whole) + 1.0{f} : whole, x);
}}
INLINE vi int_of({v} x) {{
  return {is}(x >= 0x1p31{f}) ? splat(0x7fffffff) : {is}(x == x) ? truncated(x) : vi{{}};
}}
INLINE vu unsigned_of({v} x) {{
  const vu low = (vu)truncated(x), high = (vu)truncated(x - 0x1p31{f}) ^ 0x80000000u;
  return {is}(x >= 0x1p32{f}) ? ~vu{{}} : {is}(x >= 0x1p31{f}) ? high : {is}(x > 0) ? low : vu{{}};
}}
"""

_AVX512 = """\
INLINE unsigned bits(vi mask) { return (unsigned short)__builtin_ia32_cvtd2mask512(mask); }
INLINE vd low(vf x) {
  return __builtin_ia32_cvtps2pd512_mask(__builtin_ia32_extractf32x8_mask(x, 0, vh{}, -1), vd{}, -1, 4);
}
INLINE vd high(vf x) {
  return __builtin_ia32_cvtps2pd512_mask(__builtin_ia32_extractf32x8_mask(x, 1, vh{}, -1), vd{}, -1, 4);
}
INLINE vd rounded_down(vd x) { return __builtin_ia32_rndscalepd_mask(x, 9, x, -1, 4); }
INLINE vi truncated(vf x) { return __builtin_ia32_cvttps2dq512_mask(x, vi{}, -1, 4); }
INLINE vi shifted_left(vi x, vi n) { return __builtin_ia32_psllv16si_mask(x, n, x, -1); }
INLINE vi shifted_right(vi x, vi n) { return __builtin_ia32_psrav16si_mask(x, n, x, -1); }
INLINE vu shifted_right(vu x, vu n) { return (vu)__builtin_ia32_psrlv16si_mask((vi)x, (vi)n, (vi)x, -1); }
"""

_AVX2 = """\
INLINE unsigned bits(vi mask) {{ return __builtin_ia32_movmskps{size}((vf)mask); }}
INLINE vd rounded_down(vd x) {{ return __builtin_ia32_roundpd{size}(x, 9); }}
INLINE vi truncated(vf x) {{ return __builtin_ia32_cvttps2dq{size}(x); }}
INLINE vi shifted_left(vi x, vi n) {{ return (vi)__builtin_ia32_psllv{width}si(x, n); }}
INLINE vi shifted_right(vi x, vi n) {{ return (vi)__builtin_ia32_psrav{width}si(x, n); }}
INLINE vu shifted_right(vu x, vu n) {{ return (vu)__builtin_ia32_psrlv{width}si((vi)x, (vi)n); }}
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
INLINE vu shifted_left(vu x, vu n) { return (vu)shifted_left((vi)x, (vi)n); }
"""

_DIVISION = """\
template <class V, class H> INLINE V quotient_of(V x, V y) {
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
INLINE bool passes_once(int first, int n) { return n > 16 && n < 0x7ffffff0 && first < 0x7ffffff0; }
INLINE vi quotient(int first, int n) {
  if (!passes_once(first, n)) return quotient(first + iota, splat(n));
  const int whole = first / n - (first % n < 0);
  return whole - (first - whole * n + iota >= n);
}
INLINE vi remainder(int first, int n) {
  if (!passes_once(first, n)) return remainder(first + iota, splat(n));
  const vi rest = first % n + (first % n < 0 ? n : 0) + iota;
  return rest >= n ? rest - n : rest;
}
"""
"""A float64 tells the quotient of two integers of 32 bits from the next whole number.

Where lanes follow one another, from `first` on, and pass a multiple of the divisor at most once
(`passes_once`), their quotient is that of the first, or one more.
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
INLINE double sum_of(vw x) {{
{wide_halves}  return x[0];
}}
"""


def _of_floats(width: int) -> str:
    """The helpers of vectors of float32: memory, roots and rounding."""
    fields = {"v": "vf", "type": "float", "s": "ps", "_64": "", "mask": "mask", "is": "", "f": "f"}
    fields |= {"lanes": f"{width}sf", "size": "256" if width == 8 else ""}
    return ((_MEMORY_OF_512 if width == 16 else _MEMORY_OF_256) + _ROUNDED).format_map(fields)


def _of_doubles(register: int) -> str:
    """The same of float64."""
    fields = {"v": "vw", "type": "double", "s": "pd", "_64": "_64", "mask": "mask_64(mask)", "f": ""}
    fields |= {"lanes": f"{register // 8}df", "size": "256", "is": "mask_32"}
    return ((_MEMORY_OF_512 if register == 64 else _MEMORY_OF_256) + _ROUNDED).format_map(fields)


def helpers_of(width: int, doubles: bool) -> str:
    """The text of all helpers but those for components."""
    register = width * (8 if doubles else 4)
    steps = [k for k in (8, 4, 2, 1) if k < width]
    fields = {
        "bytes": 4 * width,
        "half": 2 * width,
        "width": width,
        "all": (1 << width) - 1,
        "size": "256" if width == 8 else "",
        "register": register,
        "halves": "".join(f"  x += __builtin_shuffle(x, iota ^ {k});\n" for k in steps),
        "wide_halves": "".join(f"  x += __builtin_shuffle(x, mask_64(iota ^ {k}));\n" for k in steps),
        "iota": ", ".join(map(str, range(width))),
        "x": ", ".join(["x"] * width),
    }
    texts = [_TYPES.format_map(fields)]
    if width == 16:
        texts.append(_AVX512)
    else:
        texts += [_AVX2.format_map(fields), _HALVES_OF_8 if width == 8 else _HALVES_OF_4]
    texts += [_COMMON, _of_floats(width), _DIVISION, _REDUCTIONS.format_map(fields)]
    if doubles:
        texts += [_FLOAT64.format_map(fields), _of_doubles(register)]
    return "".join(texts)


def components_of(kind: str, width: int) -> list[str]:
    """The helpers that read vectors of some components side by side, one for each lane, and write them.

        memory     x0 y0 z0 x1 y1 z1 ..       read as registers, in order
        returned   x0 x1 ..  y0 y1 ..  z0 z1 ..

    `kind` is the number of components, with "_64" behind it for float64.
    """
    count, is_64 = int(kind[0]), kind.endswith("_64")
    vector, gather, size = ("vw", "gather_64", 8) if is_64 else ("vf", "gather", 4)
    registers, values = [f"all[{k}]" for k in range(count)], [f"x{k}" for k in range(count)]
    places = ([divmod(count * lane + k, width) for lane in range(width)] for k in range(count))
    texts = [_picked(registers, of_lanes, is_64) for of_lanes in places]
    numbers = (range(part * width, (part + 1) * width) for part in range(count))
    parts = [_picked(values, [(n % count, n // count) for n in several], is_64) for several in numbers]
    gathered = [f"{gather}(p + {size * k}, offsets, mask)" for k in range(count)]
    params, given = ", ".join(f"{vector} {value}" for value in values), ", ".join(values)
    return [
        f"struct Components{kind} {{ {vector} at[{count}]; }};",
        f"INLINE Components{kind} components_{kind}(const char* p) {{",
        f"  const {vector}u* const all = (const {vector}u*)p;",
        f"  return {{{{{', '.join(texts)}}}}};",
        "}",
        f"INLINE Components{kind} components_{kind}(const char* p, vi offsets, vi mask) {{",
        f"  if (are_all(mask)) return components_{kind}(p);",
        f"  return {{{{{', '.join(gathered)}}}}};",
        "}",
        f"INLINE void put_components_{kind}(char* p, {params}) {{",
        *(f"  (({vector}u*)p)[{k}] = {text};" for k, text in enumerate(parts)),
        "}",
        f"INLINE void put_components_{kind}(char* p, vi offsets, vi mask, {params}) {{",
        f"  if (are_all(mask)) return put_components_{kind}(p, {given});",
        *(f"  scatter(p + {size * k}, offsets, x{k}, mask);" for k in range(count)),
        "}",
    ]


def _picked(vectors: Sequence[str], places: Sequence[tuple[int, int]], is_64: bool) -> str:
    """A vector of elements of some vectors: for each lane of which of these, and at which place."""
    width, text = len(places), vectors[0]
    for k, other in enumerate(vectors[1:], 1):
        kept = [at if k == 1 else lane for lane, (_, at) in enumerate(places)]
        taken = [width + at if of == k else old for old, (of, at) in zip(kept, places, strict=True)]
        lanes = f"{'vl' if is_64 else 'vi'}{{{', '.join(map(str, taken))}}}"
        text = f"__builtin_shuffle({text}, {other}, {lanes})"
    return text
