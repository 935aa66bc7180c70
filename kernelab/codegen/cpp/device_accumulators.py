"""CUDA helpers that add running totals to memory.

While a thread adds up one element its total is a float64 of its own.  When another element's turn comes it
is settled: added to memory.  At the end the threads of a block gather what they have left, in a tree of one
shape, so that memory sees one addition a block; those whose elements are their own settle by themselves.
"""

from collections.abc import Mapping

MOST_THREADS = 1024
"""The threads of a block at most: for so many there is room to gather."""

USES: Mapping[str, tuple[str, ...]] = {
    f"gather{kind}": (f"settle{kind}", *needs)
    for kind, needs in {
        "32": (),
        "16": ("from16", "to16", "odd32"),
        "b16": ("fromb16", "tob16", "odd32"),
    }.items()
}

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
  unsigned* word = (unsigned*)((u64)at & ~3ull);
  const unsigned shift = 8u * (unsigned)((u64)at & 2ull);
  unsigned seen = *word, assumed;
  do {{
    assumed = seen;
    const unsigned sum = to{kind}(odd32(from{kind}((unsigned short)(assumed >> shift)) + added));
    seen = atomicCAS(word, assumed, (assumed & ~(0xffffu << shift)) | sum << shift);
  }} while (seen != assumed);
}}
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

CUDA_HELPERS: Mapping[str, str] = {
    "settle32": _SETTLE_32,
    "settle16": _SETTLE_16.format(kind="16"),
    "settleb16": _SETTLE_16.format(kind="b16"),
    **{f"gather{kind}": _GATHER.format(kind=kind, most=MOST_THREADS) for kind in ("32", "16", "b16")},
}
