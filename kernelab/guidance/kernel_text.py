"""Hints for kernel text written as in Python, NumPy, PyTorch or C."""

from kernelab.guidance.hint_table import Table

NAMES = Table(r"""
list: write array[float], or array2d[float]
str: a kernel has no text: pass an int that stands for it
double: write float64
i|j|idx|index|thread: write {name} = tid() on a line above, for the number of the thread
true|True_|TRUE: write True
false|FALSE: write False
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
sqr|square: write x * x
ln: write log(x)
arcsin|arccos|arctan|arctan2: write asin, acos, atan or atan2
fabs: write abs(x)
clip: write clamp(x, low, high)
fmod: write mod(x, y), or x % y as in Python
relu: write max(x, 0.0)
sigmoid: write 1.0 / (1.0 + exp(-x))
rsqrt: write 1.0 / sqrt(x)
matmul: write a @ b
divmod: write x // y and x % y
e: write exp(1.0)
self: a kernel is no method: name every argument
isinstance: the types of a kernel are known before it runs: write one function for each type
ones: write zeros(n), then a loop that sets every element
map: write a loop over range(n)
tuple: write (a, b, c)
complex: use a vec2 for the real and the imaginary part
input: pass it as an argument
enumerate|zip|reversed: write for e in x, for k, e in enumerate(x), for a, b in zip(x, y), or a loop over
    range(n)
np|numpy|torch|jnp: write sin, sqrt, ... without a prefix
threadIdx|blockIdx|blockDim|thread_id|get_global_id|cuda: write i = tid()
""")
"""Names that mean nothing in a kernel."""

OF_MODULES = Table(r"""
linalg: write length(v), inverse(m), determinant(m), ... without a prefix
prod: write a loop: p = 1.0, then p *= x[k] for k in range(len(x))
array|asarray: write vec3(a, b, c), or pass it as an array
arange: write range(n)
zeros: write zeros(8, dtype=float)
ones: write zeros(8, dtype=float), then a loop
normal|standard_normal|gauss: write state = rand_init(seed, i), then randn(state)
isclose: write abs(a - b) < 1.0e-6
outer: write outer(a, b)
grid: write i = tid()
""")
"""Functions of NumPy, `math` and their kin that the table of operations has under another name, or not."""

OF_WARP = Table(r"""
div: in Warp {} of two ints is an integer division; here it gives a float, as in Python => write //, or /
    where a float is meant
mod: in Warp {} has the sign of the left operand; here of the right one, as in Python => write %, where no
    operand is negative
""")
"""Operations that give another number in Warp."""

OF_ARRAYS = Table(r"""
append: an array keeps its length: count on the side, k = atomic_add(count, 0, 1), and write x[k]
T: write x[j, i]
grad: gradients belong to the host: tape.backward(), then x.grad
fill: write a loop over its elements, or x[:] = value
copy: write a loop over its elements, or y[:] = x
item: write x[0]
reshape: index it as it is, or reshape it on the host
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
Set: a kernel has no sets => use vec2, vec3 or vec4 for a few numbers and array parameters for many
Try|TryStar: a kernel cannot catch exceptions => test for the bad case with an if
Raise: a kernel cannot raise an exception => write assert condition, "message"
With: a kernel cannot contain a with block => open what you need outside of the kernel
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
JoinedStr: a kernel cannot build text => write print("x =", x), or printf("x = %f\n", x)
identity: a kernel cannot compare with is => write == or !=
membership: a kernel cannot search with in here => write x in (a, b, c), or a for loop that compares
iteration: a loop goes over range(...), arrays, vectors and tuples, not over this => write for i in
    range(n), or for i in range(len(x)) and use x[i]
keys: a loop in a kernel cannot sort, filter or map => write for i in range(n), with an if in its body
target: the index of a loop has to be one name => write for i in range(...)
text: a kernel cannot use text as a value => use a number, for example an int that stands for the case
formatting: a kernel cannot build text => write print("x =", x), or printf("x = %f\n", x)
nothing: a kernel has no None => use a number that stands for nothing, for example -1
complex: a kernel has no complex numbers => use a vec2 for the real and the imaginary part
star_parameters: a kernel cannot take *args or **kwargs => name every argument, or pass an array
ellipsis: a kernel cannot select with ... => write x[:] for a whole array, x[i] for a row or an element
dots: a kernel has no ... => write what it stands for
no_index: there is no index in these brackets => write x[i] for an element, x[:] for a whole array
star_call: a call in a kernel cannot unpack with ** => write the arguments one by one
""")
"""Constructs of Python that a kernel cannot contain, by the name of their node or of their case."""

NEAR_THE_ERROR = Table(r"""
.*&&.*: write and
.*\|\|.*: write or
.*<>.*: write !=
.*!(?!=).*: write not
.*\?.*: write a if condition else b
""")
"""What Python's parser refuses, by the five characters around the place."""

OF_LINES = Table(r"""
else +if\b.*|elseif\b.*|else-if\b.*: write elif
(function|func|fn|void|kernel) \w+\(.*: write def
(?!for|if|while|elif)\w+\(.*\):: write def before the name
for ?\([^)]*;.*: write for k in range(n):
(float|int|double) \w.*: a kernel is Python: write x = 0.0
def \w+\(.*\b(float|int|double|array|vec\d) \w+.*: the type stands behind the name: write x: float
//.*|.*; *//.*: a comment begins with #
.*[:)] *\{|\}.*: blocks have no braces: end the line with a colon, and begin the lines of the block 4 spaces
    further in
print [^(].*: write print("x =", x)
.*= *if .*: write a if condition else b
.*[^;];: a kernel is Python: write x = 0.0
""")
"""What Python's parser refuses, by the line of the place."""

OF_PARSER = Table(r"""
.*unexpected indent.*: let it begin in the column where the lines of its block begin
.*unindent does not match.*: let it begin in the column where an earlier line begins
.*expected an indented block.*: begin the lines of the block 4 spaces further in
.*inconsistent use of tabs.*: begin all lines with spaces, none with tabs
.*expected ':'.*: end the line with a colon
.*was never closed.*: close it at its end
.*unmatched .*: remove it, or open it before
.*cannot assign to function call.*: an element stands in square brackets: write y[i] = ...
.*Maybe you meant '=='.*: write == to compare
.*forgot a comma.*: separate the two by a comma, or by an operator
.*unterminated string.*: close the text by the quote that opens it
.*expected 'else' after 'if'.*: write a if condition else b
.*U\+(201[89ABCDEF]|00AB|00BB|2032|2033|00B4)\).*: it is a typographic quote: type the plain ' or \"
.*U\+(2010|2011|2012|2013|2014|2015|2212)\).*: it is a typographic dash: type the plain minus sign, -
.*U\+(00D7|00B7|22C5|2217|2062)\).*: write *
.*U\+(00F7|2215|2044)\).*: write /
.*U\+00B2\).*: write ** 2
.*U\+00B3\).*: write ** 3
.*U\+2264\).*: write <=
.*U\+2265\).*: write >=
.*U\+2260\).*: write !=
.*U\+221A\).*: write sqrt(x)
.*U\+(00A0|2009|202F|200B|FEFF)\).*: it looks like a space and is none: type the space again
.*invalid decimal literal.*: a name or a number ends before it: write 2.0 * x for a product, 1.0 for 1.0f
""")
"""What Python's parser refuses, by its message."""
