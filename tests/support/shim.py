"""CUDA text on a CPU: the very text that a device would run, compiled by g++ between two pieces of C++.

What stands before it means what CUDA's names mean: indices of threads and blocks, atomics, bits of floats.
What stands after it walks the blocks and, within each, the threads, in an order that is not the one in which
a CPU would run them.  Threads of a block that meet at `__syncthreads` are fibres, each with a stack of its
own.  Two instructions that the text writes in PTX are put in other words.  Knows the machine's compiler.
"""

import ctypes
import re
import subprocess
import tempfile
from pathlib import Path

from kernelab.backend.common.compiler import open_compiler

_ONE = "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor log log10"
_ONE += " log1p log2 nearbyint rint round sin sinh sqrt tan tanh trunc"
_TWO = "atan2 copysign fmax fmin fmod nextafter pow"


def _declared() -> str:
    """The functions of C that device code may call, one by one: <math.h> takes longer than all the rest."""
    lines = []
    for type, end in (("float", "f"), ("double", "")):
        lines += [f"{type} {name}{end}({type});" for name in _ONE.split()]
        lines += [f"{type} {name}{end}({type}, {type});" for name in _TWO.split()]
    lines += ["double ldexp(double, int);", "int ilogb(double);", "int printf(const char*, ...);"]
    return 'extern "C" {\n' + "\n".join(lines) + "\n}\n"


BEFORE = (
    _declared()
    + r"""
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __restrict__

struct shim_index { unsigned x, y, z; };
static shim_index threadIdx, blockIdx, blockDim, gridDim;
template <class T> inline T __ldg(const T* at) { return *at; }
template <class T> struct shim_same { typedef T type; };

#define SHIM_ATOMIC(name, held) \
  template <class T> inline T name(T* at, typename shim_same<T>::type value) { \
    const T old = *at; \
    *at = held; \
    return old; \
  }
SHIM_ATOMIC(atomicAdd, old + value)
SHIM_ATOMIC(atomicMin, value < old ? value : old)
SHIM_ATOMIC(atomicMax, value > old ? value : old)
SHIM_ATOMIC(atomicAnd, old & value)
SHIM_ATOMIC(atomicOr, old | value)
SHIM_ATOMIC(atomicXor, old ^ value)
SHIM_ATOMIC(atomicExch, value)
template <class T>
inline T atomicCAS(T* at, typename shim_same<T>::type compare, typename shim_same<T>::type value) {
  const T old = *at;
  if (old == compare) *at = value;
  return old;
}

#define SHIM_BITS(name, to, from) \
  inline to name(from value) { to bits; memcpy(&bits, &value, sizeof bits); return bits; }
SHIM_BITS(__int_as_float, float, int)
SHIM_BITS(__uint_as_float, float, unsigned)
SHIM_BITS(__float_as_int, int, float)
SHIM_BITS(__float_as_uint, unsigned, float)
SHIM_BITS(__longlong_as_double, double, long long)
SHIM_BITS(__double_as_longlong, long long, double)

inline float __double2float_rz(double value) {
  const float nearest = (float)value;
  return fabs((double)nearest) > fabs(value) ? nextafterf(nearest, 0.0f) : nearest;
}
inline float shim_from_half(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, rest = bits & 1023u;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | rest << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112u) << 23 | rest << 13);
  const float small = (float)rest * 0x1p-24f;
  return sign ? -small : small;
}
inline unsigned short shim_to_half(float value) {
  const unsigned all = __float_as_uint(value), sign = all >> 16 & 0x8000u;
  const double size = fabs((double)value);
  if (value != value) return (unsigned short)(sign | 0x7e00u);
  if (size >= 65520.0) return (unsigned short)(sign | 0x7c00u);
  int power = size < 0x1p-14 ? -14 : ilogb(size);
  const unsigned units = (unsigned)nearbyint(ldexp(size, 10 - power));  // to even; 2048 carries over
  return (unsigned short)(sign | (size < 0x1p-14 ? units : ((unsigned)(power + 14) << 10) + units));
}

static ucontext_t shim_home, *shim_me;
inline void __syncthreads() { swapcontext(shim_me, &shim_home); }
"""
)

AFTER = r"""
static void (*shim_kernel)(const void*, i64*);
static const void* shim_given;
static i64* shim_status;
static void shim_thread() { shim_kernel(shim_given, shim_status); }

// Any order will do: this one starts in the middle and jumps.
static unsigned shim_place(unsigned turn, unsigned count) {
  unsigned step = 7919 % count;
  for (;;) {
    unsigned a = count, b = step;
    while (b) { const unsigned rest = a % b; a = b, b = rest; }
    if (a == 1) break;
    ++step;
  }
  return (unsigned)(((u64)turn * step + count / 2) % count);
}

static void shim_block(bool meets) {
  const unsigned count = blockDim.x;
  if (!meets) {
    for (unsigned turn = 0; turn < count; ++turn) threadIdx.x = shim_place(turn, count), shim_thread();
    return;
  }
  const size_t room = 1 << 16;
  ucontext_t* fibres = (ucontext_t*)calloc(count, sizeof(ucontext_t));
  ucontext_t* ended = (ucontext_t*)calloc(count, sizeof(ucontext_t));
  bool* done = (bool*)calloc(count, 1);
  char* stacks = (char*)malloc(count * room);
  for (unsigned k = 0; k < count; ++k) {
    getcontext(&fibres[k]);
    fibres[k].uc_stack.ss_sp = stacks + k * room, fibres[k].uc_stack.ss_size = room;
    fibres[k].uc_link = &ended[k];
    makecontext(&fibres[k], shim_thread, 0);
  }
  for (unsigned left = count; left > 0;) {
    for (unsigned turn = 0; turn < count; ++turn) {
      const unsigned k = shim_place(turn, count);
      if (done[k]) continue;
      volatile bool returned = false;
      getcontext(&ended[k]);
      if (returned) { done[k] = true, --left; continue; }
      returned = true;
      threadIdx.x = k, shim_me = &fibres[k];
      swapcontext(&shim_home, shim_me);
    }
  }
  free(fibres), free(ended), free(done), free(stacks);
}

static void shim_run(bool meets, i64 blocks, i64 threads) {
  gridDim = {(unsigned)blocks, 1, 1}, blockDim = {(unsigned)threads, 1, 1};
  for (unsigned turn = 0; turn < blocks; ++turn) {
    blockIdx = {shim_place(turn, (unsigned)blocks), 0, 0}, threadIdx = {0, 0, 0};
    shim_block(meets);
  }
}
"""

_STARTED = r"""
static void {symbol}_shim(const void* given, i64* status) {{
  {symbol}(*(const {symbol}_args*)given, status);
}}
extern "C" void {symbol}_start(const void* given, i64* status, i64 blocks, i64 threads) {{
  shim_kernel = {symbol}_shim, shim_given = given, shim_status = status;
  shim_run({meets}, blocks, threads);
}}
"""

_WORDS = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));': "value = shim_from_half(bits);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));': "bits = shim_to_half(value);",
}
"""Instructions of PTX, and what they do."""

_ENTRY = re.compile(r'extern "C" __global__ void (\w+)\(const \w+ given, i64\* status\)')


FLAGS = ("-x", "c++", "-std=c++17", "-shared", "-fPIC", "-w", "-O1", "-ffp-contract=off", "-fwrapv")
# As on a device, a number at an address that is not a multiple of its size ends everything.
FLAGS += ("-fno-strict-aliasing", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")


def in_other_words(text: str) -> str:
    """The text between what must stand around it."""
    for ptx, plain in _WORDS.items():
        text = text.replace(ptx, plain)
    assert "asm(" not in text, "an instruction of PTX that the shim has no other words for"
    meets = "true" if "__syncthreads" in text else "false"
    started = [_STARTED.format(symbol=symbol, meets=meets) for symbol in _ENTRY.findall(text)]
    return "".join([BEFORE, text, AFTER, *started])


def compiled(text: str) -> bytes:
    """A shared library of CUDA text; its entries are started by ``SYMBOL_start``."""
    compiler = open_compiler()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library.so")
        command = [*compiler.command, *FLAGS, "-o", str(library), "-"]
        done = subprocess.run(
            command, input=in_other_words(text), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return library.read_bytes()


def loaded(code: bytes) -> ctypes.CDLL:
    """A library in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "library.so")
        path.write_bytes(code)
        return ctypes.CDLL(str(path))
