"""User-written C++ snippets as functions of generated code, and the library that they may call.

    static inline float square(float x) {
    float sq = x * x;             the lines of the snippet as they are, each with its place in the cell
    return sq;
    }

A snippet sees arrays as ``x[i]``, ``x(i, j)`` or ``wp::address(x, i, j)``, checked against their bounds, and
vectors and matrices as ``wp::vec_t`` and ``wp::mat_t``.  The compiler's messages about its lines reach
the user.
"""

import re
from collections.abc import Iterable, Iterator

from kernelab.codegen.cpp import spelling
from kernelab.codegen.cpp.entry import Line, Unit
from kernelab.errors import Diagnostic, KernelTypeError, Span
from kernelab.lang.native import Snippet, SnippetParam, mentions, plain
from kernelab.lang.types import Array, Mat, Scalar, Type, Value, Vec

_LIBRARY = """\
namespace wp {
typedef signed char int8; typedef short int16; typedef int int32; typedef i64 int64;
typedef unsigned char uint8; typedef unsigned short uint16; typedef unsigned uint32; typedef u64 uint64;
typedef float float32; typedef double float64;

template <int N, class T> struct vec_t {
  T c[N];
  FN vec_t() : c() {}
  FN vec_t(T s) { for (int i = 0; i < N; ++i) c[i] = s; }
  template <class... A> FN vec_t(T a, T b, A... rest) : c{a, b, (T)rest...} {
    static_assert(sizeof...(A) + 2 == N, "a vector of another length");
  }
  FN T& operator[](int i) { return c[i]; }
  FN const T& operator[](int i) const { return c[i]; }
  FN vec_t& operator+=(const vec_t& b) { for (int i = 0; i < N; ++i) c[i] += b.c[i]; return *this; }
  FN vec_t& operator-=(const vec_t& b) { for (int i = 0; i < N; ++i) c[i] -= b.c[i]; return *this; }
  FN vec_t& operator*=(T s) { for (int i = 0; i < N; ++i) c[i] *= s; return *this; }
  FN friend vec_t operator+(vec_t a, const vec_t& b) { return a += b; }
  FN friend vec_t operator-(vec_t a, const vec_t& b) { return a -= b; }
  FN friend vec_t operator-(vec_t a) { return a *= T(-1); }
  FN friend vec_t operator*(vec_t a, T s) { return a *= s; }
  FN friend vec_t operator*(T s, vec_t a) { return a *= s; }
  FN friend vec_t operator/(vec_t a, T s) { for (int i = 0; i < N; ++i) a.c[i] /= s; return a; }
};
template <int N, class T> FN T dot(const vec_t<N, T>& a, const vec_t<N, T>& b) {
  T sum = T(0);
  for (int i = 0; i < N; ++i) sum += a.c[i] * b.c[i];
  return sum;
}
template <int R, int C, class T> struct mat_t {
  T data[R][C];
  FN mat_t() : data() {}
  FN mat_t(T s) { for (int i = 0; i < R * C; ++i) data[i / C][i % C] = s; }
  template <class... A> FN mat_t(T a, T b, A... rest) {
    static_assert(sizeof...(A) + 2 == R * C, "a matrix of another shape");
    const T all[] = {a, b, (T)rest...};
    for (int i = 0; i < R * C; ++i) data[i / C][i % C] = all[i];
  }
  FN T* operator[](int i) { return data[i]; }
  FN const T* operator[](int i) const { return data[i]; }
  FN T& operator()(int i, int j) { return data[i][j]; }
  FN mat_t& operator+=(const mat_t& b) {
    for (int i = 0; i < R * C; ++i) data[i / C][i % C] += b.data[i / C][i % C];
    return *this;
  }
};
template <class T> using quat_t = vec_t<4, T>;
typedef vec_t<2, float> vec2; typedef vec_t<3, float> vec3; typedef vec_t<4, float> vec4;
typedef vec_t<2, double> vec2d; typedef vec_t<3, double> vec3d; typedef vec_t<4, double> vec4d;
typedef mat_t<2, 2, float> mat22; typedef mat_t<3, 3, float> mat33; typedef mat_t<4, 4, float> mat44;

template <class T> struct plain_t { typedef T type; };
template <class T> struct plain_t<const T> { typedef T type; };

// An element outside of the array is reported, and a spare one is used instead.
template <class T> struct array_t {
  char* data;
  int shape[4];
  i64 strides[4];
  int ndim;
  i64 *status, site, thread;
  typename plain_t<T>::type spare;
  FN bool inside(i64 i, int axis) const {
    if ((u64)i < (u64)shape[axis]) return true;
    fail_index(status, site, thread, i, shape[axis], axis);
    return false;
  }
  template <class I> FN T& operator[](I flat) {
    if (ndim == 1) return inside(flat, 0) ? *(T*)(data + flat * strides[0]) : blank();
    for (int k = 0; k < ndim; ++k)
      if (shape[k] == 0) return inside(0, k), blank();
    i64 at = 0, rest = flat;
    for (int k = ndim - 1; k > 0; --k) at += rest % shape[k] * strides[k], rest /= shape[k];
    return inside(flat < 0 ? -1 : rest, 0) ? *(T*)(data + at + rest * strides[0]) : blank();
  }
  template <class... I> FN T& operator()(I... index) {
    const i64 indices[] = {(i64)index...};
    i64 at = 0;
    for (int k = 0; k < (int)sizeof...(I); ++k) {
      if (!inside(indices[k], k)) return blank();
      at += indices[k] * strides[k];
    }
    return *(T*)(data + at);
  }
  FN T& blank() { spare = typename plain_t<T>::type(); return *(T*)&spare; }
  FN i64 size() const { i64 n = 1; for (int k = 0; k < ndim; ++k) n *= shape[k]; return n; }
  // A pointer walks over elements that lie side by side.
  FN bool packed() const {
    i64 size = sizeof(T);
    for (int k = ndim - 1; k >= 0; size *= shape[k--])
      if (strides[k] != size && shape[k] > 1) return false;
    return true;
  }
  FN operator T*() { return (T*)data; }
};
// What a snippet stores to, when its adjoint has been taken: a store leaves 0, a sum leaves all as it is.
template <class T> struct cleared_t {
  array_t<T> array;
  struct element {
    T* at;
    template <class V> FN void operator=(const V&) { *at = T(); }
    template <class V> FN void operator+=(const V&) {}
    template <class V> FN void operator-=(const V&) {}
  };
  template <class I> FN element operator[](I flat) { return {&array[flat]}; }
  template <class... I> FN element operator()(I... index) { return {&array(index...)}; }
};
// An array without a derivative: it reads as zeros, and what is written is lost.
template <class T> struct absent_t {
  T spare;
  template <class I> FN T& operator[](I) { spare = T(); return spare; }
  template <class... I> FN T& operator()(I...) { spare = T(); return spare; }
  FN operator T*() { spare = T(); return &spare; }
};
template <class A, class... I> FN auto address(A& array, I... index) -> decltype(array(index...)) {
  return array(index...);
}
template <class T> FN T atomic_add(T* at, T value) { ATOMIC_ADD }
template <class T, class V> FN T atomic_add(array_t<T>& x, int i, V v) { return atomic_add(&x(i), (T)v); }
template <class T, class V> FN T atomic_add(array_t<T>& x, int i, int j, V v) {
  return atomic_add(&x(i, j), (T)v);
}
template <class T, class V> FN T atomic_add(absent_t<T>& x, int i, V v) { return T(); }
template <class T, class V> FN T atomic_add(absent_t<T>& x, int i, int j, V v) { return T(); }
}
"""

_ON_CPU = """\
#include <time.h>
static i64 kl_looked = 0;
__attribute__((noinline, cold)) static bool kl_stops(i64* status) {
  timespec now;
  timespec_get(&now, TIME_UTC);
  const i64 at = now.tv_sec * 1000000000ll + now.tv_nsec;
  const i64 passed = at - __atomic_load_n(&kl_looked, __ATOMIC_RELAXED);
  if (passed >= 0 && passed < 1000000 && !((volatile i64*)status)[6]) return false;
  __atomic_store_n(&kl_looked, at, __ATOMIC_RELAXED);
  return poll(status) < 0;
}
template <class T, class V> inline T atomicAdd(T* at, V value) { T old = *at; *at += value; return old; }
"""

_ON_CUDA = """\
__device__ static bool kl_stops(i64* status) { return poll(status) < 0; }
"""

_FIRST = """\
template <class T, class V> FN T atomicAdd(wp::array_t<T>& x, V value) { return atomicAdd(&x[0], (T)value); }
template <class T, class V> FN T atomicAdd(wp::absent_t<T>& x, V value) { return T(); }
"""

_ATOMIC_ADD = {"cpu": "T old = *at; *at += value; return old;", "cuda": "return atomicAdd(at, value);"}


def library(target: str) -> str:
    """The library of snippets for ``cpu`` or ``cuda``; it follows the helpers `fail_index` and `poll`."""
    function = "__device__ inline" if target == "cuda" else "inline"
    text = f"{_LIBRARY}{_ON_CPU if target == 'cpu' else _ON_CUDA}{_FIRST}".replace(
        "ATOMIC_ADD", _ATOMIC_ADD[target]
    )
    head = "#include <math.h>\n" if target == "cpu" else ""
    return head + re.sub(r"\bFN\b", function, text)


# ------------------------------------------------------------------------- a snippet as a function

_WIDE = {
    "float": "double",
    "float32": "float64",
    **{f"{name}f": name for name in ("sqrt", "exp", "log", "sin", "cos", "tan", "pow", "fabs", "fmax")},
    **{f"{name}f": name for name in ("fmin", "tanh", "sinh", "cosh", "atan", "atan2", "asin", "acos")},
    **{f"{name}f": name for name in ("floor", "ceil", "cbrt", "exp2", "log2", "log10", "log1p", "expm1")},
    **{f"{name}f": name for name in ("asinh", "acosh", "atanh")},
}
"""The names of single precision, and what replaces them where a function is compared with differences."""


_LOOPS = {
    "interrupted()": "(kl_stopped || ((++kl_polls & 255) == 0 && (kl_stopped = kl_stops(kl_status))))",
    "while(...)": "while (!interrupted() && (__VA_ARGS__))",
    "for(...)": "for (__VA_ARGS__) if (interrupted()) break; else",
}
"""What a loop asks, so that an interrupt of the user ends it: by the preprocessor, which knows C++'s words.

Every 256th iteration looks at the clock, and each millisecond one lets signals in.
"""

_ENDLESS = re.compile(r"\bfor\s*\([^;()]*;\s*;")
_UNASKED = re.compile(
    r"\b(?:struct|class)\b|\[\s*\]\s*[({]|\bwhile\s*\(\s*(?:const\s+)?\w[\w:]*[\s*&]+\w+\s*[={]"
)
"""Functions in the snippet, which do not see its variables; and what declares a variable in a condition."""


def asks(snippet: Snippet) -> bool:
    """Whether an interrupt may end a snippet: it has a ``while``, a ``for (;;)``, or asks itself."""
    return bool(_asking(snippet))


def _asking(snippet: Snippet) -> list[str]:
    text = plain(snippet.text)
    words = ["interrupted()"] * mentions(text, "interrupted")
    if not _UNASKED.search(text) and not has_device_words(snippet):  # there, threads wait for each other
        words += ["while(...)"] * mentions(text, "while") + ["for(...)"] * bool(_ENDLESS.search(text))
    return ["interrupted()", *words] if words else []


def define(snippet: Snippet, symbol: str, target: str) -> Iterator[Line]:
    """The lines of the function that a snippet becomes."""
    asking = list(dict.fromkeys(_asking(snippet)))
    params = ", ".join([*["i64* kl_status"] * bool(asking), *map(_declared, snippet.params)])
    result = "void" if snippet.result is None else spelt(snippet.result)
    yield Line(f"{'__device__ ' if target == 'cuda' else ''}static inline {result} {symbol}({params}) {{")
    words = _WIDE if snippet.is_wide else {}
    yield from (Line(f"#define {name} {wide}") for name, wide in words.items())
    if asking:
        yield Line("unsigned kl_polls = 0; bool kl_stopped = false;")
    yield from (Line(f"#define {word} {_LOOPS[word]}") for word in asking)
    yield from (Line(line.text, line.span, True) for line in snippet.lines)
    if asking and snippet.result is not None:  # where a loop ends that the compiler takes for endless
        yield Line(f"return {result}();")
    yield from (Line(f"#undef {name.partition('(')[0]}") for name in (*words, *asking))
    yield Line("}")


def _declared(param: SnippetParam) -> str:
    match param.access:
        case "sum":
            return f"{spelt(param.type)}& {param.name}"
        case "value":
            return f"{spelt(param.type)} {param.name}"
        case _:
            return f"{view_type(param)}& {param.name}"


def view_type(param: SnippetParam) -> str:
    """The type through which a snippet sees an array."""
    assert isinstance(param.type, Array)
    elem = spelt(param.type.elem)
    match param.access:
        case "read":
            return f"wp::array_t<const {elem}>"
        case "clear":
            return f"wp::cleared_t<{elem}>"
        case "absent":
            return f"wp::absent_t<{elem}>"
        case _:
            return f"wp::array_t<{elem}>"


def spelt(type: Type) -> str:
    """The type of a value in a snippet."""
    match type:
        case Scalar():
            return spelling.value_type(type)
        case Vec(scalar, n):
            return f"wp::vec_t<{n}, {spelling.value_type(scalar)}>"
        case Mat(scalar, n, m):
            return f"wp::mat_t<{n}, {m}, {spelling.value_type(scalar)}>"
        case _:
            raise AssertionError(f"{type} is not a value")


def component(type: Value, name: str, k: int) -> str:
    """The k-th component of a variable."""
    match type:
        case Scalar():
            return name
        case Vec():
            return f"{name}.c[{k}]"
        case Mat(_, _, m):
            return f"{name}.data[{k // m}][{k % m}]"
        case _:
            raise AssertionError(f"{type} is not a value")


# ------------------------------------------------------------------------- what is refused

_DEVICE_ONLY = re.compile(r"__shared__|__syncthreads|__syncwarp|\b(?:threadIdx|blockIdx|blockDim|gridDim)\b")


def has_device_words(snippet: Snippet) -> bool:
    """Whether a snippet is written for the threads of a CUDA device."""
    return any(_DEVICE_ONLY.search(line.text) for line in snippet.lines)


def refuse_device_words(snippet: Snippet) -> None:
    """Raise KernelTypeError where a snippet for a CPU names what only a CUDA device has."""
    for line in snippet.lines:
        match = _DEVICE_ONLY.search(line.text)
        if match is not None:
            message = f"{snippet.name} uses {match.group()}, which only a CUDA device has"
            hint = "on a CPU threads run one after another: write the snippet for one thread"
            raise KernelTypeError.of(
                message, "native", hint, _stretch(line.span, match.start(), len(match.group()))
            )


def complaints(unit: Unit, errors: Iterable[tuple[int, int, str]]) -> tuple[Diagnostic, ...]:
    """The compiler's errors in snippets; `errors` are lines and columns of the unit, from 1, and texts."""
    by_place: dict[tuple[int, int], Diagnostic] = {}
    for number, column, text in errors:
        line = unit.lines[number - 1] if 1 <= number <= len(unit.lines) else None
        if line is None or not line.is_native or line.span is None:
            continue
        start = min(max(column - 1, 0), max(len(line.text) - 1, 0))
        word = re.match(r"\w+|\S", line.text[start:])
        span = _stretch(line.span, start, len(word.group()) if word else 1)
        hint = _READ_ONLY if "read-only" in text or "discards" in text else ""
        by_place.setdefault((span.line, span.column), Diagnostic(f"C++: {text}", span, "native", hint=hint))
    return tuple(by_place.values())


_READ_ONLY = "an array is written as x[i] = ..., x[i] += ... or through wp::atomic_add(x, i, ...)"


def _stretch(span: Span, start: int, length: int) -> Span:
    column = span.column + start
    return Span(span.source, span.line, column, span.line, column + length)
