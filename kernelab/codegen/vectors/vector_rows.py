"""C++ text of helpers that move whole vectors, one for each lane, anywhere in memory, and columns.

    memory       .. x5 y5 z5 ..  x0 y0 z0 ..  x7 y7 z7 ..      one vector for each lane
    registers    x0 y0 z0 0  x4 y4 z4 0 ..  x1 y1 z1 0 ..      rows of four numbers
    returned     x0 x1 ..  y0 y1 ..  z0 z1 ..

Four registers hold the rows of all lanes, the k-th those of lanes k, k + 4 and so on.  Shuffles within each
four numbers transpose them.  A gather for each component takes up to twice as long.

A loop along `x[i, k]`, in which each lane has a row of its own, reads and writes as many columns at a time as
there are lanes: a register for each row, transposed by shuffles.  It asks for what follows in each row: no
processor looks ahead in so many rows at once.
"""

_ROWS = """\
typedef float Four __attribute__((vector_size(16)));
typedef float FourU __attribute__((vector_size(16), aligned(4), may_alias));
typedef int FourI __attribute__((vector_size(16)));
template <int n> INLINE Four row_at(const char* p) {{
  if (n == 4) return *(const FourU*)p;
  return __builtin_ia32_maskloadps((const Four*)p, FourI{{-1, -1, n > 2 ? -1 : 0, 0}});
}}
template <int n> INLINE vf rows_at(const char* p, const int* at) {{
{joined}
}}
INLINE void put_rows(Four* rows, vf all) {{
{parted}
}}
INLINE vf low_turns(vf x, vf y) {{ return __builtin_shuffle(x, y, vi{{{low_turns}}}); }}
INLINE vf high_turns(vf x, vf y) {{ return __builtin_shuffle(x, y, vi{{{high_turns}}}); }}
INLINE vf low_pairs(vf x, vf y) {{ return __builtin_shuffle(x, y, vi{{{low_pairs}}}); }}
INLINE vf high_pairs(vf x, vf y) {{ return __builtin_shuffle(x, y, vi{{{high_pairs}}}); }}
"""

_OF_KIND = """\
INLINE Components{n} components_apart_{n}(const char* p, vi offsets) {{
  int at[{width}];
  *(viu*)at = offsets;
  const vf r0 = rows_at<{n}>(p, at), r1 = rows_at<{n}>(p, at + 1);
  const vf r2 = rows_at<{n}>(p, at + 2), r3 = rows_at<{n}>(p, at + 3);
  const vf xy0 = low_turns(r0, r1), xy2 = low_turns(r2, r3);
  const vf zw0 = high_turns(r0, r1), zw2 = high_turns(r2, r3);
  return {{{{{components}}}}};
}}
INLINE void rows_of_{n}(Four* rows, {parameters}) {{
  const vf xy0 = low_turns(x, y), xy2 = high_turns(x, y), zw0 = low_turns(z, w), zw2 = high_turns(z, w);
  put_rows(rows, low_pairs(xy0, zw0)), put_rows(rows + 1, high_pairs(xy0, zw0));
  put_rows(rows + 2, low_pairs(xy2, zw2)), put_rows(rows + 3, high_pairs(xy2, zw2));
}}
"""

_COMPONENTS = ("low_pairs(xy0, xy2)", "high_pairs(xy0, xy2)", "low_pairs(zw0, zw2)", "high_pairs(zw0, zw2)")

_JOINED = {
    4: "  return row_at<n>(p + at[0]);",
    8: """\
  const vf low = __builtin_ia32_ps256_ps(row_at<n>(p + at[0]));
  return __builtin_ia32_vinsertf128_ps256(low, row_at<n>(p + at[4]), 1);""",
    16: """\
  vf all = {};
  all = __builtin_ia32_insertf32x4_mask(all, row_at<n>(p + at[0]), 0, all, -1);
  all = __builtin_ia32_insertf32x4_mask(all, row_at<n>(p + at[4]), 1, all, -1);
  all = __builtin_ia32_insertf32x4_mask(all, row_at<n>(p + at[8]), 2, all, -1);
  return __builtin_ia32_insertf32x4_mask(all, row_at<n>(p + at[12]), 3, all, -1);""",
}

_PARTED = {
    4: "  rows[0] = all;",
    8: """\
  rows[0] = __builtin_ia32_vextractf128_ps256(all, 0);
  rows[4] = __builtin_ia32_vextractf128_ps256(all, 1);""",
    16: """\
  rows[0] = __builtin_ia32_extractf32x4_mask(all, 0, Four{}, -1);
  rows[4] = __builtin_ia32_extractf32x4_mask(all, 1, Four{}, -1);
  rows[8] = __builtin_ia32_extractf32x4_mask(all, 2, Four{}, -1);
  rows[12] = __builtin_ia32_extractf32x4_mask(all, 3, Four{}, -1);""",
}

_COLUMNS = """\
struct Columns {{ vf at[{width}]; vi offsets; char* first; long long block, count; }};
template <int d> INLINE void exchange(vf& x, vf& y) {{
  const vi is_odd = (iota & d) != 0;
  const vi low = is_odd ? iota - d + {width} : iota, high = is_odd ? iota + {width} : iota + d;
  const vf first = __builtin_shuffle(x, y, low);
  y = __builtin_shuffle(x, y, high), x = first;
}}
template <int d> INLINE void exchange_all(vf* all) {{
#pragma GCC unroll {width}
  for (int k = 0; k < {width}; ++k)
    if (!(k & d)) exchange<d>(all[k], all[k + d]);
}}
__attribute__((noinline)) static void get_columns(Columns& columns, const char* p, vi offsets,
                                                  long long block, long long count) {{
  const vi there = iota < (int)count;
  const long long ahead = block < columns.block ? -128 : 128;
  vf all[{width}];
#pragma GCC unroll {width}
  for (int k = 0; k < {width}; ++k) {{
    all[k] = fetch(p + offsets[k], there);
    __builtin_prefetch(p + offsets[k] + ahead);
  }}
  {exchanges}
#pragma GCC unroll {width}
  for (int k = 0; k < {width}; ++k) columns.at[k] = all[k];
  columns.block = block;
}}
__attribute__((noinline)) static void put_columns(const Columns& columns) {{
  if (columns.block < 0) return;
  if (columns.count < {width}) {{
    for (int k = 0; k < columns.count; ++k)
      scatter(columns.first + 4 * k, columns.offsets, columns.at[k], on);
    return;
  }}
  vf all[{width}];
#pragma GCC unroll {width}
  for (int k = 0; k < {width}; ++k) all[k] = columns.at[k];
  {exchanges}
#pragma GCC unroll {width}
  for (int k = 0; k < {width}; ++k) *(vfu*)(columns.first + columns.offsets[k]) = all[k];
}}
"""

NAMES = "Four FourU FourI row_at rows_at put_rows low_turns high_turns low_pairs high_pairs low all "
NAMES += "Columns exchange exchange_all there ahead get_columns put_columns"
"""The names in these texts."""


def rows(width: int) -> str:
    """The helpers of all kinds of vectors, for a number of lanes."""
    return _ROWS.format(
        joined=_JOINED[width],
        parted=_PARTED[width],
        low_turns=_taken(width, [0, width, 1, width + 1]),
        high_turns=_taken(width, [2, width + 2, 3, width + 3]),
        low_pairs=_taken(width, [0, 1, width, width + 1]),
        high_pairs=_taken(width, [2, 3, width + 2, width + 3]),
    )


def _taken(width: int, of_four: list[int]) -> str:
    """The positions of a shuffle that does the same in each four numbers."""
    return ", ".join(str(four + k) for four in range(0, width, 4) for k in of_four)


def rows_of(n: int, width: int) -> str:
    """The helpers that read a vector of `n` components for each lane, and lay out such vectors as rows."""
    components = ", ".join(_COMPONENTS[:n])
    parameters = ", ".join(["vf x", "vf y", "vf z", "vf w"][:n] + ["vf z = vf{}", "vf w = vf{}"][n - 2 :])
    return _OF_KIND.format(n=n, width=width, components=components, parameters=parameters)


def columns(width: int) -> str:
    """The helpers that read and write a block of as many columns as there are lanes, or all that are left."""
    distances = [d for d in (8, 4, 2, 1) if d < width]
    exchanges = " ".join(f"exchange_all<{d}>(all);" for d in distances)
    return _COLUMNS.format(width=width, exchanges=exchanges)
