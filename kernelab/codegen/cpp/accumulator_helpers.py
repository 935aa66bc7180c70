"""C++ helpers for float64 accumulators of array elements on a CPU (`codegen.cpp.wide_accumulators`).

The float64s come in blocks of 256, each made when it is first needed, so that a launch pays for what it adds
to and not for the size of the array.  Where there is no memory for one, the addition is a plain one.
"""

from collections.abc import Iterator, Mapping

EXACT = 1024
"""The ratio of an element to a float32 addend from which the addition goes to an accumulator.

Rounding then takes less than a part in 32768 of the addend from any addition, however many there are.
"""

_BESIDE = """\
extern "C" void* calloc(unsigned long, unsigned long);
extern "C" void free(void*);
static double* beside(double**& sums, i64 place, i64 places) {
  if (!sums && !(sums = (double**)calloc((places >> 8) + 1, 8))) return 0;
  double*& block = sums[place >> 8];
  if (!block && !(block = (double*)calloc(256, 8))) return 0;
  return block + (place & 255);
}
"""

_WIDEN = """\
__attribute__((always_inline)) static inline void widen{name}(char* at, float value, double**& sums,
                                                           i64 place, i64 places) {{
  {type}* const element = ({type}*)at;
  double* sum = 0;
  if ({small} || !(sum = beside(sums, place, places)))
    *element = {narrow}({wide}(*element) + value);
  else
    *sum += value;
}}
"""

_SPREAD = """\
static void spread{name}(char* low, double** sums, i64 places) {{
  if (!sums) return;
  for (i64 k = 0; k <= places >> 8; ++k) {{
    {type}* const elements = ({type}*)low + (k << 8);
    for (int i = 0; sums[k] && i < 256; ++i)
      if (sums[k][i]) elements[i] = {settled}({wide}(elements[i]) + sums[k][i]){close};
    free(sums[k]);
  }}
  free(sums);
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
    for type in (_FLOAT, _half("16"), _half("b16")):
        yield f"widen{type['name']}", _WIDEN.format_map(type)
        yield f"spread{type['name']}", _SPREAD.format_map(type)


CPU_HELPERS: Mapping[str, str] = dict(_helpers())

USES: Mapping[str, tuple[str, ...]] = {
    "widen32": ("beside",),
    "widen16": ("from16", "to16", "beside"),
    "spread16": ("from16", "to16", "odd32"),
    "widenb16": ("fromb16", "tob16", "beside"),
    "spreadb16": ("fromb16", "tob16", "odd32"),
}
