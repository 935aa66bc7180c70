"""C++ helpers for float64 accumulators of array elements (`codegen.cpp.wide_accumulators`).

On a CPU the float64s come in blocks of 64, each made when it is first needed, so that a launch pays for what
it adds to and not for the size of the array.  A small array has one float64 for each element from the
beginning: an addition then needs no test of its size.  Those of a vector of three stand in four places: it
crosses no cache line, and one instruction adds to all of it.  Where there is no memory, the addition is a
plain one.
In a field of packed records, whose stride is not a multiple of its size, an element can begin at any byte.
A total that all threads share is settled by a whole launch, and handed over by a part (`share32`).

On a device the total of one element is a float64 of the thread's own.  When another element's turn comes it
is settled: added to memory.  At the end the threads of a block gather what they have left, in a tree of one
shape, so that memory sees one addition a block; those whose elements are their own settle by themselves.
"""

from collections.abc import Iterator, Mapping

from kernelab.codegen.cpp.entry import BOX, SUMS
from kernelab.codegen.cpp.spelling import in_word

EXACT = 1024
"""The ratio of an element to a float32 addend from which the addition goes to an accumulator.

Rounding then takes less than a part in 32768 of the addend from any addition, however many there are.
"""

DENSE = 1 << 15
"""The most scalars of an array that has all of its float64s from the beginning."""

MOST = 1 << 26
"""The same where a launch makes as many additions: half a gigabyte of float64s."""

GROUPS = 1 << 12
"""The groups of neighbouring elements whose additions are counted: the nearest cache has room for as many."""

FEW_OF_GROUP = 1 << 16
"""With fewer additions to each group float32 loses nothing that matters, however many there are in all."""

SAMPLED = 1 << 6
"""One in so many threads is counted, at random: a group that gets many additions is a large part of them."""

_BESIDE = f"""\
extern "C" void* calloc(unsigned long, unsigned long);
extern "C" void free(void*);
extern "C" void* memset(void*, int, unsigned long);
struct Sums {{ void* made; double* dense; double** blocks; i64 places; int shift; bool padded; }};
struct Index {{ const char* at; i64 step; int times; i64 across; unsigned columns; }};
template <int N> static bool spread_out(u64 extent, i64 threads, const Index (&all)[N]) {{
  unsigned counts[{GROUPS}], most = 0;
  int shift = 0;
  while ((extent - 1) >> shift >= {GROUPS}) ++shift;
  memset(counts, 0, sizeof counts);
  for (const Index& one : all) {{
    unsigned random = 1;
    for (i64 from = 0; from + {SAMPLED} <= threads; from += {SAMPLED}) {{
      random = random * 1664525u + 1013904223u;
      const char* const row = one.at + (from + (random >> 16) % {SAMPLED}) * one.step;
      const int k = *(const int*)(row + (random >> 8) % one.columns * one.across);
      counts[((u64)(k < 0 ? k + (i64)extent : k) >> shift) % {GROUPS}] += one.times;
    }}
  }}
  for (int k = 0; k < {GROUPS}; ++k) most = counts[k] > most ? counts[k] : most;
  return most < {FEW_OF_GROUP // SAMPLED};
}}
static Sums sums_of(i64 bytes, int shift, double additions, bool few, bool triples) {{
  const i64 scalars = bytes >> shift, places = triples ? bytes / 3 + 1 : scalars;
  const bool dense = !few && places <= (additions >= scalars ? {MOST} : {DENSE});
  void* const made = dense ? calloc(places + 4, 8) : 0;
  if (!made) return {{0, 0, 0, scalars, shift, false}};
  return {{made, (double*)(((i64)made + 31) & -32), 0, places, shift, triples}};
}}
__attribute__((always_inline)) static inline i64 place_of(const Sums& sums, i64 offset) {{
  return sums.padded ? offset / 3 : offset >> sums.shift;
}}
static double* beside(Sums& sums, i64 place) {{
  if (!sums.blocks && !(sums.blocks = (double**)calloc((sums.places >> 6) + 1, 8))) return 0;
  double*& block = sums.blocks[place >> 6];
  if (!block && !(block = (double*)calloc(64, 8))) return 0;
  return block + (place & 63);
}}
"""

_WIDEN = """\
__attribute__((always_inline)) static inline void widen{name}(char* at, float value, double* dense, bool few,
                                                             Sums& sums, i64 place) {{
  {type}* const element = ({type}*)at;
  if (dense) {{
    dense[place] += value;
    return;
  }}
  double* sum = 0;
  if (few || {small} || !(sum = beside(sums, place)))
    *element = {narrow}({wide}(*element) + value);
  else
    *sum += value;
}}
"""

_PUT_ROW = """\
typedef float Four __attribute__((vector_size(16)));
typedef float FourU __attribute__((vector_size(16), aligned(4), may_alias));
typedef double Pairs __attribute__((vector_size(16)));
typedef double Pair __attribute__((aligned(4), may_alias));
template <int n> __attribute__((always_inline)) static inline void put_row(char* at, Four value) {
  if (n == 4)
    *(FourU*)at = value;
  else
    *(Pair*)at = ((Pairs)value)[0];
  if (n == 3) ((float*)at)[2] = value[2];
}
"""

# A sum is read again in the parts in which it was written: else the processor waits until memory has it.
_ADD_ROW = """\
template <int n> __attribute__((always_inline)) static inline void add_row(char* at, Four value) {
  if (n == 4) return put_row<4>(at, *(FourU*)at + value);
  put_row<2>(at, (Four)Pairs{*(Pair*)at, 0.0} + value);
  if (n == 3) ((float*)at)[2] += value[2];
}
"""

_WIDEN_TRIPLE = """\
typedef float Four __attribute__((vector_size(16)));
typedef double WideFour __attribute__((vector_size(32), aligned(8), may_alias));
__attribute__((always_inline)) static inline void widen_triple32(char* at, float x, float y, float z,
                                                                 double* dense, bool few, Sums& sums,
                                                                 i64 place) {
  if (few) {
    float* const element = (float*)at;
    element[0] += x, element[1] += y, element[2] += z;
    return;
  }
  if (sums.padded) {
    *(WideFour*)(dense + place) += __builtin_convertvector((Four{x, y, z, 0.0f}), WideFour);
    return;
  }
  const i64 next = 4 >> sums.shift;
  widen32(at, x, dense, few, sums, place);
  widen32(at + 4, y, dense, few, sums, place + next);
  widen32(at + 8, z, dense, few, sums, place + 2 * next);
}
"""

_WIDEN_ROW = """\
typedef float Two __attribute__((vector_size(8)));
typedef double WideTwo __attribute__((vector_size(16), aligned(8), may_alias));
template <int n>
__attribute__((always_inline)) static inline void widen_row(char* at, Four value, double* dense, bool few,
                                                            Sums& sums, i64 place) {
  if (few) return add_row<n>(at, value);
  if (n == 3) return widen_triple32(at, value[0], value[1], value[2], dense, few, sums, place);
  if (dense && sums.shift == 2) {
    if (n == 4) *(WideFour*)(dense + place) += __builtin_convertvector(value, WideFour);
    if (n == 2) *(WideTwo*)(dense + place) += __builtin_convertvector((Two{value[0], value[1]}), WideTwo);
    return;
  }
  for (int k = 0; k < n; ++k)
    widen32(at + 4 * k, value[k], dense, few, sums, place + k * (4 >> sums.shift));
}
"""

_SPREAD = """\
static void settle_all{name}(char* low, int shift, bool padded, const double* sums, i64 count) {{
  for (i64 i = 0; i < count; ++i) {{
    {type}* const element = ({type}*)(low + (padded ? 3 * i + (i & 3) : i << shift));
    if (sums[i]) *element = {settled}({wide}(*element) + sums[i]){close};
  }}
}}
static void spread{name}(char* low, Sums& sums) {{
  if (sums.dense) settle_all{name}(low, sums.shift, sums.padded, sums.dense, sums.places);
  for (i64 k = 0; sums.blocks && k <= sums.places >> 6; ++k) {{
    if (sums.blocks[k]) settle_all{name}(low + (k << 6 << sums.shift), sums.shift, false, sums.blocks[k], 64);
    free(sums.blocks[k]);
  }}
  free(sums.made);
  free(sums.blocks);
}}
"""

_SHARE = f"""\
static inline void share32(i64* status, int number, char* at, double total) {{
  i64* const box = (i64*)status[{BOX}];
  i64* const sum = box && box[{SUMS}] ? box + {SUMS + 1} + 2 * number : 0;
  if (!sum) return settle32(at, total);
  if (at) sum[0] = (i64)at, *(double*)(sum + 1) += total;
}}
"""

_FLOAT = {
    "name": "32",
    "type": "float",
    "wide": "",
    "narrow": "",
    "small": f"__builtin_fabsf(*element) <= {EXACT}.0f * __builtin_fabsf(value) || value == 0.0f",
    "settled": "(float)",
    "close": "",
}


def _half(name: str) -> Mapping[str, str]:
    return {
        "name": name,
        "type": "unsigned short",
        "wide": f"from{name}",
        "narrow": f"to{name}",
        "small": "value == 0.0f",
        "settled": f"to{name}(odd32",
        "close": ")",
    }


def _helpers() -> Iterator[tuple[str, str]]:
    yield "beside", _BESIDE
    yield "share32", _SHARE
    for type in (_FLOAT, _half("16"), _half("b16")):
        yield f"widen{type['name']}", _WIDEN.format_map(type)
        yield f"spread{type['name']}", _SPREAD.format_map(type)
    yield "widen_triple32", _WIDEN_TRIPLE
    yield "put_row", _PUT_ROW
    yield "add_row", _ADD_ROW
    yield "widen_row", _WIDEN_ROW


CPU_HELPERS: Mapping[str, str] = dict(_helpers())


# ------------------------------------------------------------------------------------------ on a device

MOST_THREADS = 1024
"""The threads of a block at most: for so many there is room to gather."""

# Compared and swapped, only one of all blocks that come at the same time would get through at a time.
_SETTLE_32 = """\
__device__ static void settle32(char* at, double& total) {
  const float added = (float)total;
  total = 0.0;
  if (at && added != 0.0f) atomicAdd((float*)at, added);
}
"""

_SETTLE_16 = """\
__device__ static void settle{kind}(char* at, double& total) {{
  const double added = total;
  total = 0.0;
  if (!at || added == 0.0) return;
{exchange}}}
"""

# Every thread of the block comes here, also those that had nothing to do.
_GATHER = """\
__device__ static void gather{kind}(char* at, double total) {{
  __shared__ double totals[{most}];
  __shared__ char* places[{most}];
  const int me = threadIdx.x;
  totals[me] = total, places[me] = at;
  __syncthreads();
  for (int width = blockDim.x; width > 1;) {{
    const int half = (width + 1) / 2, other = me + half;
    if (other < width) {{
      if (!places[me]) places[me] = places[other], totals[me] = totals[other];
      else if (places[me] == places[other]) totals[me] += totals[other];
      else settle{kind}(places[other], totals[other]);
    }}
    width = half;
    __syncthreads();
  }}
  if (me == 0) settle{kind}(places[0], totals[0]);
  __syncthreads();
}}
"""

# Where a whole warp adds to one element, memory sees one addition.
_WARP_ADD_32 = """\
__device__ static void warp_add32(float* at, float value) {
#if __CUDA_ARCH__ >= 700
  const unsigned all = 0xffffffffu;
  int same = 0;
  if (__activemask() == all) __match_all_sync(all, (u64)at, &same);
  if (same) {
    for (int half = 16; half > 0; half /= 2) value += __shfl_down_sync(all, value, half);
    if (threadIdx.x % 32) return;
  }
#endif
  atomicAdd(at, value);
}
"""


def _settle(kind: str) -> str:
    sum = f"to{kind}(odd32(from{kind}((unsigned short)(assumed >> shift)) + added))"
    lines = in_word("at", 16, [f"const unsigned sum = {sum};"])
    return _SETTLE_16.format(kind=kind, exchange="".join(f"  {line}\n" for line in lines))


CUDA_HELPERS: Mapping[str, str] = {
    "warp_add32": _WARP_ADD_32,
    "settle32": _SETTLE_32,
    "settle16": _settle("16"),
    "settleb16": _settle("b16"),
    **{f"gather{kind}": _GATHER.format(kind=kind, most=MOST_THREADS) for kind in ("32", "16", "b16")},
}
