"""C++ text of the helper functions that generated bodies call, and names distinct from theirs and C++'s.

A unit contains those that its text calls and nothing else (`called`).  Each table is ordered: a helper calls
only helpers that stand before it.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence

from kernelab.codegen.cpp import accumulator_helpers
from kernelab.codegen.cpp.entry import PRINT_LIMIT, ROOM, USED, WRAPPED
from kernelab.codegen.cpp.spelling import device_helpers, half_helpers, in_word
from kernelab.lang import show
from kernelab.lang.ir import Var

_SIGNED = """\
template <class F> {words} {type} to_{name}(F x) {{
  return x >= (F){top} ? {most} : x >= (F)-{top} ? ({type})x : x < 0 ? (-{most} - 1) : 0;
}}
"""

_UNSIGNED = """\
template <class F> {words} {type} to_{name}(F x) {{
  return x >= (F){top} ? {most} : x > 0 ? ({type})x : 0;
}}
"""

_CASTS = {
    "int8": ("signed char", "127", "0x1p7"),
    "int16": ("short", "32767", "0x1p15"),
    "int32": ("int", "2147483647", "0x1p31"),
    "int64": ("i64", "9223372036854775807LL", "0x1p63"),
    "uint8": ("unsigned char", "255", "0x1p8"),
    "uint16": ("unsigned short", "65535", "0x1p16"),
    "uint32": ("unsigned", "4294967295u", "0x1p32"),
    "uint64": ("u64", "18446744073709551615ull", "0x1p64"),
}
"""By the name of an integer type: its C++ type, its largest number, and the power of 2 behind that."""

_TRIPS = """\
template <class T, class U> {words} T trips(T start, T stop, T step) {{
  if (step > 0 ? start >= stop : start <= stop || step == 0) return 0;
  const U far = step > 0 ? (U)stop - (U)start : (U)start - (U)stop;
  const U more = (U)(far - 1) / (step > 0 ? (U)step : (U)(0 - (U)step));
  return more < (U)-1 / 2 ? (T)(more + 1) : (T)-1;
}}
"""


_ODD32I = """\
template <class T> {words} float odd32i(T value) {{
  const T bound = (T)1 << 40;
  if (value < bound && (value >= 0 || value > (T)(0 - bound))) return odd32((double)value);
  const T low = value & (T)0xffff;
  return odd32((double)((value - low) | (low ? (T)0x10000 : (T)0)));
}}
"""
"""Of 64 bits: low bits that no float of 24 holds are folded into one, then a double is exact."""

_ROUND = """\
{words} float round{kind}(float value) {{ return from{kind}(to{kind}(value)); }}
"""

_TO_BFLOAT16 = """\
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((bits >> 16 & 0x8000u) | 0x7fc0u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
"""
"""Rounded to nearest, ties to even; a NaN keeps its sign."""

_SETTLE = """\
static inline void settle{kind}(char* at, double& total) {{
  if (at) *(unsigned short*)at = to{kind}(odd32(from{kind}(*(unsigned short*)at) + total));
  total = 0.0;
}}
"""


def _exchanged(head: str, bits: int, *body: str) -> str:
    """A function of a device that adds to an element narrower than a word, exchanged with its neighbours."""
    result = head.partition(" add")[0]
    lines = [*in_word("pointer", bits, body), f"return ({result})(seen >> shift);"]
    return f"__device__ static inline {head} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def helpers(words: str) -> Mapping[str, str]:
    """The helpers by name; `words` stand before each function."""
    texts = {"trips": _TRIPS.format(words=words)}
    for name, (type, most, top) in _CASTS.items():
        text = _UNSIGNED if name.startswith("u") else _SIGNED
        texts[f"to_{name}"] = text.format(words=words, type=type, name=name, top=top, most=most)
    return texts


# --------------------------------------------------------------------------------------------------- helpers


BUDGET = 1 << 22
"""The number of statements between two polls: a millisecond or a few."""

PRELUDE = """\
typedef long long i64;
typedef unsigned long long u64;
"""

CPU_HELPERS: Mapping[str, str] = {
    **helpers("static inline"),
    # Called at most once a launch: out of the way of the code that runs.
    "fail": """\
__attribute__((noinline, cold)) static void fail(i64* status, i64 code, i64 site, i64 thread) {
  status[0] = code, status[1] = site, status[2] = thread;
}
""",
    "fail_index": """\
__attribute__((noinline, cold)) static void fail_index(i64* status, i64 site, i64 thread, i64 index,
                                                       i64 extent, i64 axis) {
  status[0] = 1, status[1] = site, status[2] = thread;
  status[3] = index, status[4] = extent, status[5] = axis;
}
""",
    "poll": f"""\
__attribute__((noinline, cold)) static i64 poll(i64* status) {{
  if (status[7]) ((void (*)(i64*))status[7])(status);
  if (!((volatile i64*)status)[6]) return {BUDGET};
  status[0] = 5;
  return -1;
}}
""",
    "malloc": """\
extern "C" void* malloc(unsigned long);
extern "C" void free(void*);
""",
    # Inlined, so that the three stay in registers; only the call of realloc is left.
    "room": """\
extern "C" void* realloc(void*, unsigned long);
extern "C" void free(void*);
__attribute__((always_inline)) static inline bool room(char*& base, char*& top, char*& limit, i64 needed,
                                                        i64 most) {
  const i64 used = top - base, wanted = 2 * (limit - base) + 4096 + needed;
  if (most && used + needed > most) return false;
  const i64 size = most && wanted > most ? most : wanted;
  char* grown = (char*)realloc(base, size);
  if (!grown) return false;
  base = grown, top = grown + used, limit = grown + size;
  return true;
}
""",
    # A residual takes a part of the room that is left for all of them: others grow, too.
    "more": f"""\
extern "C" void* realloc(void*, unsigned long);
__attribute__((always_inline)) static inline bool more(i64* status, char*& data, i64& capacity, i64 size) {{
  const i64 room = status[{ROOM}], spare = (room - status[{USED}]) / size;
  if (room && spare < 1) return false;
  const i64 step = room && spare / 8 < capacity + 1024 ? spare / 8 + 1 : capacity + 1024;
  char* grown = (char*)realloc(data, (capacity + step) * size);
  if (!grown) return false;
  status[{USED}] += step * size;
  data = grown, capacity += step;
  return true;
}}
""",
    # Room for the values of one print, none where enough has been printed: then it is only counted.
    "say": f"""\
extern "C" void* realloc(void*, unsigned long);
__attribute__((noinline, cold)) static i64* say(i64* status, i64 message, i64 values) {{
  if (++status[11] > {PRINT_LIMIT}) return 0;
  const i64 end = status[9] + 1 + values;
  if (end > status[10]) {{
    i64* grown = (i64*)realloc((void*)status[8], (2 * end + 512) * 8);
    if (!grown) return 0;
    status[8] = (i64)grown, status[10] = 2 * end + 512;
  }}
  i64* record = (i64*)status[8] + status[9];
  record[0] = message, status[9] = end;
  return record + 1;
}}
""",
    # Half precision by the machine's instructions, else by its bits; both round to nearest, ties to even.
    # Not through _Float16: with it the compiler calls a library for comparisons.
    "from16": """\
static inline float from16(unsigned short bits) {
#ifdef __F16C__
  typedef short halves __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps((halves){(short)bits})[0];
#else
  unsigned all = (unsigned)(bits & 0x7fff) << 13;
  float value;
  __builtin_memcpy(&value, &all, 4);
  value *= 0x1p112f;
  __builtin_memcpy(&all, &value, 4);
  if ((bits & 0x7c00) == 0x7c00) all |= 0x7f800000u;
  all |= (unsigned)(bits & 0x8000) << 16;
  __builtin_memcpy(&value, &all, 4);
  return value;
#endif
}
""",
    "to16": """\
static inline unsigned short to16(float value) {
#ifdef __F16C__
  typedef float floats __attribute__((vector_size(16)));
  return (unsigned short)__builtin_ia32_vcvtps2ph((floats){value}, 0)[0];
#else
  unsigned all;
  __builtin_memcpy(&all, &value, 4);
  const unsigned sign = all >> 16 & 0x8000u;
  all &= 0x7fffffffu;
  if (all > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  if (all >= 0x47800000u) return (unsigned short)(sign | 0x7c00u);
  if (all >= 0x38800000u) {
    all += 0xfffu + (all >> 13 & 1u) - 0x38000000u;
    return (unsigned short)(sign | all >> 13);
  }
  __builtin_memcpy(&value, &all, 4);
  value += 0.5f;
  __builtin_memcpy(&all, &value, 4);
  return (unsigned short)(sign | (all - 0x3f000000u));
#endif
}
""",
    # Toward zero, with the last bit set if anything was lost: rounding once more to half is then exact.
    "odd32": """\
static inline float odd32(double value) {
  float nearest = (float)value;
  if (nearest == value || value != value) return nearest;
  unsigned bits;
  __builtin_memcpy(&bits, &nearest, 4);
  bits = (bits - (__builtin_fabs(nearest) > __builtin_fabs(value))) | 1;
  __builtin_memcpy(&nearest, &bits, 4);
  return nearest;
}
""",
    "round16": _ROUND.format(words="static inline", kind="16"),
    "odd32i": _ODD32I.format(words="static inline"),
    "fromb16": """\
static inline float fromb16(unsigned short bits) {
  const unsigned all = (unsigned)bits << 16;
  float value;
  __builtin_memcpy(&value, &all, 4);
  return value;
}
""",
    "tob16": f"""\
static inline unsigned short tob16(float value) {{
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
{_TO_BFLOAT16}}}
""",
    "roundb16": _ROUND.format(words="static inline", kind="b16"),
    "settleb16": _SETTLE.format(kind="b16"),
    # A running total reaches its element.
    "settle32": """\
static inline void settle32(char* at, double& total) {
  if (at) *(float*)at = (float)(*(float*)at + total);
  total = 0.0;
}
""",
    "settle16": _SETTLE.format(kind="16"),
    **accumulator_helpers.CPU_HELPERS,
}

CUDA_HELPERS: Mapping[str, str] = device_helpers() | {
    **helpers("__device__ static inline"),
    # The first thread that fails is the one that is reported.
    "fail": """\
__device__ static void fail(i64* status, i64 code, i64 site, i64 thread) {
  if (atomicCAS((u64*)status, 0ull, (u64)code) == 0ull) status[1] = site, status[2] = thread;
}
""",
    "fail_index": """\
__device__ static void fail_index(i64* status, i64 site, i64 thread, i64 index, i64 extent, i64 axis) {
  if (atomicCAS((u64*)status, 0ull, 1ull) != 0ull) return;
  status[1] = site, status[2] = thread, status[3] = index, status[4] = extent, status[5] = axis;
}
""",
    # Nothing can be called from a device: the host sets the flag while the kernel runs.
    "poll": f"""\
__device__ static i64 poll(i64* status) {{
  if (!((volatile i64*)status)[6]) return {BUDGET};
  atomicCAS((u64*)status, 0ull, 5ull);
  return -1;
}}
""",
    # Of the lanes that have the same to say one does: the status is in the memory of the host.
    "note": f"""\
__device__ static void note(i64* status, u64 wrapped) {{
#if __CUDA_ARCH__ >= 700
  const unsigned same = __match_any_sync(__activemask(), wrapped);
  if (same & ((1u << threadIdx.x % 32) - 1)) return;
#endif
  atomicOr((u64*)status + {WRAPPED}, wrapped);
}}
""",
    # What a thread may save was fixed before the launch.
    "room": """\
__device__ static inline bool room(char*& base, char*& top, char*& limit, i64 needed, i64 most) {
  return false;
}
""",
    "more": """\
__device__ static inline bool more(i64* status, char*& data, i64& capacity, i64 size) { return false; }
""",
    "from16": """\
__device__ static inline float from16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
""",
    "to16": """\
__device__ static inline unsigned short to16(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
""",
    "odd32": """\
__device__ static inline float odd32(double value) {
  const float cut = __double2float_rz(value);
  return cut == value || value != value ? cut : __uint_as_float(__float_as_uint(cut) | 1);
}
""",
    "round16": _ROUND.format(words="__device__ static inline", kind="16"),
    "odd32i": _ODD32I.format(words="__device__ static inline"),
    "fromb16": """\
__device__ static inline float fromb16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
""",
    "tob16": f"""\
__device__ static inline unsigned short tob16(float value) {{
  const unsigned bits = __float_as_uint(value);
{_TO_BFLOAT16}}}
""",
    "roundb16": _ROUND.format(words="__device__ static inline", kind="b16"),
    "addb16": _exchanged(
        "unsigned short addb16(char* pointer, float number)",
        16,
        "const unsigned sum = tob16(fromb16((unsigned short)(assumed >> shift)) + number);",
    ),
    **half_helpers(),
    "add8": _exchanged(
        "unsigned char add8(char* pointer, unsigned value)",
        8,
        "const unsigned sum = ((assumed >> shift) + value) & 0xffu;",
    ),
    "add16": _exchanged(
        "unsigned short add16(char* pointer, unsigned value, bool half, float number)",
        16,
        "const unsigned short old = (unsigned short)(assumed >> shift);",
        "const unsigned sum = half ? to16(from16(old) + number) : (old + value) & 0xffffu;",
    ),
    **accumulator_helpers.CUDA_HELPERS,
}


_CALLED = re.compile(r"\b\w++(?=[(<])")


def called(helpers: Mapping[str, str], lines: Iterable[str]) -> list[str]:
    """The texts of the helpers that some lines call, and of those that these call, in order."""
    names = set(_CALLED.findall("\n".join(lines)))
    texts: list[str] = []
    for name, text in reversed([*helpers.items()]):
        if name in names:
            names.update(_CALLED.findall(text))
            texts.insert(0, text)
    return texts


# ------------------------------------------------------------------------------------------------------ names


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
wrapped own realloc free said ahead already box calloc from0 from1 from2 from3 upto0 upto1 upto2 upto3
Sums sums_of spread_out Index place_of Three WideThree settle_all32 settle_all16 settle_allb16 run known
"""

RESERVED = frozenset(
    [*KEYWORDS.split(), *DEVICE.split(), *OURS.split()]
    + [*CPU_HELPERS, *CUDA_HELPERS]
    + [name + suffix for name in MATHEMATICS.split() for suffix in ("", "f", "l")]
)


def identifier(hint: str) -> str:
    """`hint` as letters of the basic alphabet: ``α`` becomes ``alpha``; "t" where nothing is left."""
    text = "".join(character if character.isascii() else _spelled(character) for character in hint)
    text = re.sub(r"\W", "_", text).strip("_")
    text = re.sub(r"__+", "_", text)
    return f"t{text}" if not text or text[0].isdigit() else text


def _spelled(character: str) -> str:
    return unicodedata.name(character, f"u{ord(character):04x}").split()[-1].lower()


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
