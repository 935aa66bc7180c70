"""Helper functions of generated code that give integers: floats as ints, and how often a `range` runs.

The text is the same for every target, apart from the words before a function; none of it is undefined in C++.
"""

from collections.abc import Mapping

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


def helpers(words: str) -> Mapping[str, str]:
    """The helpers by name; `words` stand before each function."""
    found = {"trips": _TRIPS.format(words=words)}
    for name, (type, most, top) in _CASTS.items():
        text = _UNSIGNED if name.startswith("u") else _SIGNED
        found[f"to_{name}"] = text.format(words=words, type=type, name=name, top=top, most=most)
    return found
