r"""Tables of hints for kernels: what to write instead of idioms of Python, NumPy, PyTorch, C or Warp.

An entry is a line, ``names: hint`` or ``names: reason => hint``; «code» is what editors make edits of:

    sum|mean: write kl.utils.array_sum(x)
    tile\w*: tiles are not part of the language => write a loop over the elements

A line that is indented goes on with the one before.  ``{name}`` in a hint is the name that was asked for.
"""

import re
from typing import NamedTuple

from kernelab.data_classes.turns import cached_property


class Guidance(NamedTuple):
    """Advice on a missing name: the reason, if a table gives one, and what to write instead."""

    reason: str
    hint: str


class Table:
    """Guidance by names, which are alternatives or regular expressions."""

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, name: str) -> Guidance | None:
        """The guidance for a name; None where nothing is known."""
        matching = (text for names, text in self._others if names.fullmatch(name))
        text = self._plain.get(name) or next(matching, "")
        if not text:
            return None
        reason, arrow, hint = text.replace("{name}", name).partition(" => ")
        return Guidance(reason, hint) if arrow else Guidance("", reason)

    def hint(self, name: str) -> str:
        """The advice for a name; empty where there is none."""
        guidance = self.find(name)
        return guidance.hint if guidance is not None else ""

    # Read when a name is first missing, not at import.

    @cached_property
    def entries(self) -> list[tuple[str, str]]:
        """Names and text of each entry, in order."""
        lines = self._text.replace("\n    ", " ").strip().splitlines()
        entries = (line.partition(": ") for line in lines)
        return [(names, text) for names, _, text in entries]

    @cached_property
    def _plain(self) -> dict[str, str]:
        return {name: text for names, text in self.entries if _is_plain(names) for name in names.split("|")}

    @cached_property
    def _others(self) -> list[tuple[re.Pattern[str], str]]:
        return [(re.compile(names), text) for names, text in self.entries if not _is_plain(names)]


def _is_plain(names: str) -> bool:
    return all(name.isidentifier() for name in names.split("|"))


NAMES = Table(r"""
list|List|Sequence|NDArray|ndarray|Tensor|template: write array[float], or array2d[float]
dict|Dict: use vec2, vec3 or vec4 for a few numbers, a struct for named ones, array parameters for many
Optional: an argument is always given: write its type alone
launch: a kernel launches no other: make it a function that returns a value, or launch both from Python
mat2|mat3|mat4: write mat22, mat33 or mat44«/mat(\d)/mat\1\1/»
str: a kernel has no text: pass an int that stands for it
double|f64: write «float64»
real|f32|single|number|Number|numeric: write «float»
integer|i32|Int|Integer|long: write «int»
boolean|Bool: write «bool»
size: write len(x), or x.shape[0]
prange: write i = tid() in place of the loop, and launch n threads: kernel[n](...)
ndrange|grouped: write i, j = tid() in place of the loop, and launch a grid: kernel[n, m](...)
i|j|idx|index|thread: write «^{name} = tid()» on a line above, for the number of the thread
true|True_|TRUE: write «True»
false|FALSE: write «False»
none|null|NULL: a kernel has no None: use a number that stands for nothing, for example -1
math: write sin, sqrt, pi, ... without a prefix, or import math in the notebook
random|rand: write state = rand_init(seed, i), then randf(state)
randn: write state = rand_init(seed, i), then randn(state)
uniform: write state = rand_init(seed, i), then randf(state, low, high)
sum: write a loop: s = 0.0, then s += x[k] for k in range(len(x))
mean: write a loop: s = 0.0, then s += x[k] for k in range(len(x)); divide by len(x)
any|all: write a loop
sorted: write a loop, or sort on the host: kl.utils.radix_sort_pairs
norm: write length(v) of a vector
hypot: write length(vec2(a, b)), or sqrt(a * a + b * b)
sqr|square: write x * x«/(?:sqr|square)\((\w+)\)/\1 * \1/»
ln: write log(x)«/\bln\b/log/»
arcsin|arccos|arctan|arctan2: write asin, acos, atan or atan2«/arc(sin|cos|tan)/a\1/»
fabs: write abs(x)«/fabs/abs/»
clip: write clamp(x, low, high)«/clip/clamp/»
maximum: write max(a, b)«/maximum/max/»
minimum: write min(a, b)«/minimum/min/»
fmod: write mod(x, y)«/fmod/mod/», or x % y as in Python
relu: write max(x, 0.0)«/relu\((.*)\)/max(\1, 0.0)/»
sigmoid: write 1.0 / (1.0 + exp(-x))
rsqrt|inversesqrt: write 1.0 / sqrt(x)
matmul: write a @ b
det: write determinant(a)«/\bdet\b/determinant/»
exp2: write 2.0 ** x
heaviside: write where(x > 0.0, 1.0, 0.0)
softplus: write log1p(exp(x))«/softplus\((.*)\)/log1p(exp(\1))/»
sinc: write where(x == 0.0, 1.0, sin(pi * x) / (pi * x))
deg2rad: write radians(x)«/deg2rad/radians/»
rad2deg: write degrees(x)«/rad2deg/degrees/»
mag|magnitude: write length(v)«/\b(mag|magnitude)\b/length/»
norm_?(sq|sqr|squared|2)|sqr_?norm|squared_norm|(length|mag|magnitude)_?squared|mag_?sq|sqrmagnitude: write
    length_sq(v)
solve: write inverse(a) * b, of a square matrix a
eye: write identity(n=3, dtype=float)
refract: write eta * d + (eta * c - sqrt(k)) * n, where c = -dot(d, n) and k = 1.0 - eta * eta * (1.0 - c * c)
numel: write x.size
copy|deepcopy: numbers and vectors are copied by y = x; for an array write a loop over its elements, or
    y[:] = x
set|frozenset: write i in (0, 2) for a test, and pass an array of ints for many
exit|quit: write return, which ends the thread
lgamma|gammaln|digamma|[jyik]v|jn|legendre|hyp\w+: it is no operation of the language: use SciPy's on the
    host, in a function of kl.func.custom_vjp
\w+_bar: kernelab makes the adjoint, and tapes run it: tape.backward(loss), then x.grad
mix: write lerp(a, b, t)«/\bmix\b/lerp/»
saturate: write clamp(x, 0.0, 1.0)
fract: write x - floor(x)«/fract\((\w+)\)/(\1 - floor(\1))/»; frac(x) keeps the sign of x
reflect: write d - 2.0 * dot(d, n) * n
texture\w*|tex2D: an image is an array: write img[i, j], and lerp between elements
discard: write return
float[234]|half[234]: write vec2, vec3 or vec4«/(float|half)(\d)/vec\2/»
zeros_like|empty|empty_like|full|full_like: write zeros(8, dtype=float), with a length that the text states
dist|distance: write length(a - b)
(__|sync_)?(syncthreads|syncwarp|threads)|(sync_|block_)barrier|barrier|shared: threads share no memory,
    and do not wait for each other: make two launches
inv: write inverse(a)«/\binv\b/inverse/»
vec: write vec3(x, y, z); as a type vec2, vec3 or vec4
divmod: write x // y and x % y
e: write exp(x) for a power of e, «exp(1.0)» for e itself
π|Pi: write «pi»
plt|matplotlib|pd: a kernel computes: draw on the host, when it has run
time|input: pass it as an argument
end|endif|endfor|done|fi: a block ends with its indentation: remove it
self|this: a kernel is not a method: name every argument
isinstance: the types of a kernel are known before it runs: write one function for each type
ones: write zeros(n), then a loop that sets every element
map: write a loop over range(n)
tuple|Tuple: write (a, b, c); as a type vec2, vec3 or a struct
complex|complex64|complex128: use a vec2 for the real and the imaginary part
enumerate|zip|reversed: write for e in x, for k, e in enumerate(x), for a, b in zip(x, y), or a loop over
    range(n)
np|numpy|torch|jnp|jax|tf|F|nn|cp|cupy|sp|scipy|autograd: write sin, where, max, ... without a prefix
ti|taichi: write sin, vec3, static, ... without a prefix, and i = tid() for the loop over the grid
lax: write for, while, if, and where(condition, a, b) for select
cuda: write i = tid(), or i, j = tid(), for the place in the grid, and y[k] += v for an atomic; threads share
    no memory, and do not wait for each other: make two launches
threadIdx|blockIdx|blockDim|thread_idx|block_idx|thread_id|get_global_id|program_id: write i = tid()
    «/(thread_id|get_global_id|program_id)\(.*\)/tid()/»
""")
"""Names that mean nothing in a kernel."""

OF_MODULES = Table(r"""
linalg: write length(v), inverse(m), determinant(m), ... without a prefix
prod: write a loop: p = 1.0, then p *= x[k] for k in range(len(x))
array|asarray: write vec3(a, b, c), or pass it as an array
arange: write range(n)
zeros|empty: write zeros(8, dtype=float)
ones: write zeros(8, dtype=float), then a loop
normal|standard_normal|gauss: write state = rand_init(seed, i), then randn(state)
isclose: write abs(a - b) < 1.0e-6
outer: write outer(a, b)
roll: write x[(i - 1) % len(x)], the element that it brings to i
diff: write x[i + 1] - x[i]
gradient: write 0.5 * (x[i + 1] - x[i - 1]), a central difference; a tape gives the gradient of a loss
interp: find the interval in a loop, then write lerp(y[k], y[k + 1], t)
convolve|correlate: write a loop: s += w[k] * x[i + k] for k in range(len(w))
histogram|bincount: write h[k] += 1.0 in each thread, where k is the int of its bin
cumsum|cumprod: write a loop in one thread, or kl.utils.array_scan(x, out) on the host
std|var|median: write loops over the elements, or compute it on the host
real|imag|conj|conjugate|angle: a kernel has no complex numbers: use a vec2 for the real and the imaginary
    part
fft|ifft|rfft|irfft|fft2|ifft2: call it on the host, in a function of kl.func.custom_vjp
grid: write i = tid()
""")
"""Functions of NumPy, `math` and their kin that the table of operations has under another name, or not."""

OF_WARP = Table(r"""
div: in Warp {} of two ints is an integer division; here it gives a float, as in Python => write //, or /
    where a float is meant
mod: in Warp {} has the sign of the left operand; here of the right one, as in Python => write fmod of floats
    for the sign of the left, or % where no operand is negative
""")
"""Operations that give another number in Warp."""

DECORATORS = Table(r"""
(custom_|def_?|register_)?(vjp|jvp|grad|gradient|backward|derivative|rule)s?: the derivative of a def f is a
    def of its own: write @func_grad(f) above it, def adj_f(x: float, g: float), and in it adjoint[x] += ...
.*: leave it out: a def of a kernel cell is compiled; @kernel and @func say as what
""")
"""Decorators of defs, by the last part of their name."""

OF_ARRAYS = Table(r"""
at: write y[i] = value, or y[i] += value
append: an array keeps its length: count on the side, k = atomic_add(count, 0, 1), and write x[k]
T: write x[j, i]
grad: gradients belong to the host: tape.backward(), then x.grad; in a grad function write adjoint[x] += ...
fill: write a loop over its elements, or x[:] = value
copy: write a loop over its elements, or y[:] = x
item: write x[0]
reshape: index it as it is, or reshape it on the host
ptr: kernels have no addresses: index it as it is, or pass x.reshape((3, 4)) from the host
flatten: index it as it is, or flatten it on the host
numpy: a kernel works on the elements: x[i]
sum: write a loop: s = 0.0, then s += x[k] for k in range(len(x))
mean: write a loop: s = 0.0, then s += x[k] for k in range(len(x)); divide by len(x)
max: write a loop: m = x[0], then m = max(m, x[k])
min: write a loop: m = x[0], then m = min(m, x[k])
len|length: write len(x)
""")
"""Attributes of an array parameter."""

SYNTAX = Table(r"""
Lambda: a kernel cannot contain a lambda => define the function with def above the kernel and call it
ListComp|SetComp|DictComp|GeneratorExp: a kernel cannot build a list => write a for loop that adds up, or
    fills a = zeros(3), an array of the thread's own
List: a kernel has no lists => write a = zeros(3) and set its elements, vec3(x, y, z) for a few numbers, or
    pass an array
Dict: a kernel has no dictionaries => use vec2, vec3 or vec4 for a few numbers and array parameters for many
Set: a kernel has no sets => write i in (0, 2) for a test; vec2 to vec4 for a few numbers, an array for many
Try|TryStar: a kernel cannot catch exceptions => test for the bad case with an if
Raise: a kernel cannot raise an exception => write assert condition, "message"
With: a kernel cannot contain a with block => open what you need outside of the kernel; in place of
    no_grad write stop_gradient(x[i])
ClassDef: a kernel cannot define a class => define it outside of the kernel
FunctionDef: a kernel cannot define a function => move the def above the kernel and call it
AsyncFunctionDef|AsyncFor|AsyncWith|Await: a kernel cannot wait for anything: async and await have no
    meaning in it => write a plain def
Yield|YieldFrom: a kernel cannot yield => store the values into an array parameter
Global|Nonlocal: a kernel cannot assign to a variable outside of itself => write the result into an array
    parameter
Delete: a kernel cannot delete anything => leave the del out: variables end with the kernel
Import|ImportFrom: a kernel cannot import a module => move the import to the top of the cell
Starred: a kernel cannot unpack with a star here => write the values one by one
NamedExpr: a kernel cannot assign inside an expression here => assign on a line of its own, then use the
    name
Match: a kernel cannot contain a match statement => write if, elif and else
JoinedStr|formatting: a kernel cannot build text => write print("x =", x), or printf("x = %f\n", x)
identity: a kernel cannot compare with is => write == or !=
membership: a kernel cannot search with in here => write x in (a, b, c), or a for loop that compares
iteration: a loop goes over range(...), arrays, vectors and tuples, not over this => write for i in
    range(n), or for i in range(len(x)) and use x[i]
keys: a loop in a kernel cannot sort, filter or map => write for i in range(n), with an if in its body
target: the index of a loop has to be one name => write for i in range(...)
text: a kernel cannot use text as a value => use a number, for example an int that stands for the case
nothing: a kernel has no None => use a number that stands for nothing, for example -1
complex: a kernel has no complex numbers => use a vec2 for the real and the imaginary part
star_parameters: a kernel cannot take *args or **kwargs => name every argument, or pass an array
ellipsis: a kernel cannot select with ... => write x[:] for a whole array, x[i] for a row or an element
dots: a kernel has no ... => write what it stands for
new_axis: an index in a kernel cannot be None => write x[0] for a single element, x[i, j] for one of a table
no_index: there is no index in these brackets => write x[i] for an element, x[:] for a whole array
star_call: a call in a kernel cannot unpack with ** => write the arguments one by one
""")
"""Constructs of Python that a kernel cannot contain, by the name of their node or of their case."""

NEAR_THE_ERROR = Table(r"""
.*&&.*: write and«/ *&& */ and /»
.*\|\|.*: write or«/ *\|\| */ or /»
.*===.*: write ==«/===/==/»
.*<>.*: write !=«/<>/!=/»
.*!(?!=).*: write not«/!(?!=) */not /»
.*\?.*: write a if condition else b
.*=>.*: write >= to compare, = to assign
.*=<.*: write <=«/=</<=/»
""")
"""What Python's parser refuses, by the five characters around the place."""

OF_LINES = Table(r"""
(retrun|reutrn|retun|retrn|reurn|returm) .*: write return«/^\w+/return/»
else +if\b.*|elseif\b.*|else-if\b.*: write elif«/else *-? *if/elif/»
(function|func|fn|void|kernel) \w+\(.*: write def«/(function|func|fn|void|kernel) /def /»
(?!for|if|while|elif)\w+\(.*\):: write def before the name«/(?=\w)/def /»
for ?\([^)]*;.*: write for k in range(n):
(float|int|double) \w.*: a kernel is Python: write x = 0.0«/(float|int|double) +(\w.*?);?$/\2/»
def \w+\((.*, *)?(float|int|double|array\w*|vec\d)(\[\w+\])? \w+.*: the type stands behind the name: write
    x: float«/\b((?:float|int|double|array\w*|vec\d)(?:\[\w+\])?) (\w+)/\2: \1/»
def \w+\(.*\b\w+ +(array\w*|float|int|bool|(vec|mat)\d+)\b.*: a colon stands between a name and its
    type: write x: float«/(\w+) +(?=(array\w*|float|int|bool|(vec|mat)\d+)\b)/\1: /»
//.*|.*; *//.*: a comment begins with #«/;? *\x2f\x2f/  #/»
.*[:)] *\{|\}.*: blocks have no braces: end the line with a colon, and begin the lines of the block 4 spaces
    further in
print [^(].*: write print("x =", x)«/print (.*)/print(\1)/»
(if|elif|while|for) [^:]*\b(return|break|continue)\b.*: end the condition with a colon
    «/ *\b(?=return|break|continue)/: /»
if .*\bthen\b.*: end the condition with a colon«/ *\bthen\b */: /»
.*= *if .*|.* then .*: write a if condition else b
do *:.*|repeat .*|loop .*: write for k in range(n):, or while condition:
(switch|case)\b.*: write if, elif and else
def .*\w(<\w*>|\[\]).*: write array[float], or array2d[float]
.*\w\] *:=.*: write =«/:=/=/»
for \w+ (in|=) *\w+ *(:|to\b|\.\.).*: write for k in range(first, last + 1):
.*= .* for \w+ in .*: write the loop on a line of its own, and the sum in its block
.*\w\{\w.*: an element stands in square brackets: write x[i]
.*\w['′].*: a name has no prime: write dx, or x1
.*\|[^|]+\|.*: write abs(x)«/\|([^|]+)\|/abs(\1)/»
.*[\w\]] (mod|div) \w.*: write % for the remainder, // for the quotient«/ mod / % /»
.*[a-z][²³]\(.*: write sin(x) ** 2
.*\b(and|or) *[<>=!].*: write the whole condition again behind this word, as in a > 1 or a < -1
.*\b(and|or|not) *:: a condition is missing between this word and the colon
.*\((float|int|double)\) *\w.*: write float(x)«/\((float|int)\) *([\w.]+(\[[^]]*\])?)/\1(\2)/»
.*\b(sin|cos|tan|exp|log|sqrt|abs|tanh|float|int) +\w.*: what a function takes
    stands in parentheses: write sin(x)
    «/\b(sin|cos|tan|exp|log|sqrt|abs|tanh|float|int) +([\w.]+(\[[^]]*\])?)/\1(\2)/»
if [^:]+:.+\belse\b.*: write y = a if condition else b, or begin a line with else:
.*\w[\])][A-Za-z_].*: an operator is missing behind the bracket
.*[^;];: a kernel is Python: write x = 0.0«/;$//»
""")
"""What Python's parser refuses, by the line of the place."""

OF_PARSER = Table(r"""
.*unexpected indent.*: let it begin in the column where the lines of its block begin
.*unindent does not match.*: let it begin in the column where an earlier line begins
.*expected an indented block.*: begin the lines of the block 4 spaces further in
.*inconsistent use of tabs.*: begin all lines with spaces, none with tabs
.*expected ':'.*: end the line with a colon«/\s*$/:/»
.*was never closed.*: close it at its end«/(\(.*?)(:?)$/\1)\2/»«/(\[.*?)(:?)$/\1]\2/»
.*unmatched .*: remove it«», or open it before
.*cannot assign to function call.*: an element stands in square brackets: write y[i] = ...; a function begins
    with def, as in def f(x: float): return x * x
    «/^(\w+\(.*?\)) *= *(.+)/def \1: return \2/»«/^(\s.*?\w)\((.*?)\)( *[-+*]?=)/\1[\2]\3/»
.*Maybe you meant '=='.*: write == to compare«/(?<![=<>!])=(?!=)/==/»
.*cannot assign to expression.*: on the left of = stands a name or an element: write == to compare
'(break|continue)' .*loop: only a loop is left by it: write return, which ends the thread
.*forgot a comma.*: separate the two by a comma, or by an operator
.*unterminated string.*: close the text by the quote that opens it
.*expected 'else' after 'if'.*: write a if condition else b
.*U\+(201[89ABCDEF]|00AB|00BB|2032|2033|00B4)\).*: it is a typographic quote: type the plain ' or \"
.*U\+(2010|2011|2012|2013|2014|2015|2212)\).*: it is a typographic dash: type the plain minus sign, «-»
.*U\+(00D7|00B7|22C5|2217|2062)\).*: write «*»
.*U\+(00F7|2215|2044)\).*: write «/»
.*U\+00B2\).*: write «** 2»
.*U\+00B3\).*: write «** 3»
.*U\+2264\).*: write «<=»
.*U\+2265\).*: write «>=»
.*U\+2260\).*: write «!=»
.*U\+221A\).*: write sqrt(x)
.*U\+(00A0|2009|202F|200B|FEFF)\).*: it looks like a space and is none: type the space again
    «/[\u00a0\u2009\u202f\u200b\ufeff]/ /»
.*invalid decimal literal.*: a name or a number ends before it: write 2.0 * x for a product, 1.0 for 1.0f
""")
"""What Python's parser refuses, by its message."""
