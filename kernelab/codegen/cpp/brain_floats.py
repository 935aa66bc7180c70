"""C++ helpers for bfloat16, the upper half of the bits of a float, on a CPU and on a CUDA device.

By their bits, rounded to nearest, ties to even; a NaN keeps its sign.  `odd32` stands before them.
"""

from collections.abc import Mapping

# A whole number of 64 bits: low bits that no float of 24 holds are folded into one, then a double is exact.
_ODD32I = """\
template <class T> {function} float odd32i(T value) {{
  const T bound = (T)1 << 40;
  if (value < bound && (value >= 0 || value > (T)(0 - bound))) return odd32((double)value);
  const T low = value & (T)0xffff;
  return odd32((double)((value - low) | (low ? (T)0x10000 : (T)0)));
}}
"""

_BITS = """\
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((bits >> 16 & 0x8000u) | 0x7fc0u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
"""

CPU_HELPERS: Mapping[str, str] = {
    "odd32i": _ODD32I.format(function="static inline"),
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
{_BITS}}}
""",
    "roundb16": """\
static inline float roundb16(float value) { return fromb16(tob16(value)); }
""",
    "settleb16": """\
static inline void settleb16(char* at, double& total) {
  if (at) *(unsigned short*)at = tob16(odd32(fromb16(*(unsigned short*)at) + total));
  total = 0.0;
}
""",
}

CUDA_HELPERS: Mapping[str, str] = {
    "odd32i": _ODD32I.format(function="__device__ static inline"),
    "fromb16": """\
__device__ static inline float fromb16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
""",
    "tob16": f"""\
__device__ static inline unsigned short tob16(float value) {{
  const unsigned bits = __float_as_uint(value);
{_BITS}}}
""",
    "roundb16": """\
__device__ static inline float roundb16(float value) { return fromb16(tob16(value)); }
""",
    # The element is exchanged together with its neighbour in the word.
    "addb16": """\
__device__ static inline unsigned short addb16(char* pointer, float number) {
  unsigned* word = (unsigned*)((u64)pointer & ~3ull);
  const unsigned shift = 8u * (unsigned)((u64)pointer & 2ull);
  unsigned seen = *word, assumed;
  do {
    assumed = seen;
    const unsigned sum = tob16(fromb16((unsigned short)(assumed >> shift)) + number);
    seen = atomicCAS(word, assumed, (assumed & ~(0xffffu << shift)) | sum << shift);
  } while (seen != assumed);
  return (unsigned short)(seen >> shift);
}
""",
}
