r"""Tables of hints: what to write instead of a name or a habit of Python, NumPy, PyTorch, C or Warp.

An entry is a line, ``names: hint`` or ``names: reason => hint``; «code» is what editors make edits of:

    sum|mean: write kl.utils.array_sum(x)
    tile\w*: tiles are not part of the language => write a loop over the elements

A line that is indented goes on with the one before.  ``{name}`` in a hint is the name that was asked for.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple, NoReturn

from kernelab.data_classes.turns import cached_property
from kernelab.errors import KernelAttributeError, LaunchError


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
        text = self._plain.get(name) or next(
            (text for names, text in self._others if names.fullmatch(name)), ""
        )
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


# ------------------------------------------------------------------------------------------------ kernel text


NAMES = Table(r"""
list: write array[float], or array2d[float]
str: a kernel has no text: pass an int that stands for it
double: write «float64»
real|single|number|Number|numeric: write «float»
integer|Int|Integer|long: write «int»
boolean|Bool: write «bool»
size: write len(x), or x.shape[0]
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
rsqrt: write 1.0 / sqrt(x)
matmul: write a @ b
inv: write inverse(a)«/\binv\b/inverse/»
vec: write vec3(x, y, z)
divmod: write x // y and x % y
e: write exp(x) for a power of e, «exp(1.0)» for e itself
π|Pi: write «pi»
plt|matplotlib|pd: a kernel computes: draw on the host, when it has run
time: pass it as an argument
end|endif|endfor|done|fi: a block ends with its indentation: remove it
self: a kernel is not a method: name every argument
isinstance: the types of a kernel are known before it runs: write one function for each type
ones: write zeros(n), then a loop that sets every element
map: write a loop over range(n)
tuple: write (a, b, c)
complex: use a vec2 for the real and the imaginary part
input: pass it as an argument
enumerate|zip|reversed: write for e in x, for k, e in enumerate(x), for a, b in zip(x, y), or a loop over
    range(n)
np|numpy|torch|jnp|jax|tf|F: write sin, where, max, ... without a prefix
threadIdx|blockIdx|blockDim|thread_id|get_global_id|cuda: write i = tid()
    «/(thread_id|get_global_id)\(.*\)/tid()/»
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
mod: in Warp {} has the sign of the left operand; here of the right one, as in Python => write fmod of floats
    for the sign of the left, or % where no operand is negative
""")
"""Operations that give another number in Warp."""

OF_ARRAYS = Table(r"""
at: write y[i] = value, or y[i] += value
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
.*&&.*: write and«/ *&& */ and /»
.*\|\|.*: write or«/ *\|\| */ or /»
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
def \w+\(.*\b(float|int|double|array|vec\d) \w+.*: the type stands behind the name: write x: float
    «/\b(float|int|double|vec\d) (\w+)/\2: \1/»
//.*|.*; *//.*: a comment begins with #«/;? *\x2f\x2f/  #/»
.*[:)] *\{|\}.*: blocks have no braces: end the line with a colon, and begin the lines of the block 4 spaces
    further in
print [^(].*: write print("x =", x)«/print (.*)/print(\1)/»
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


# -------------------------------------------------------------------------------------- attributes of objects


ARRAYS = Table(r"""
backward: launch on a tape, and ask it: with kl.Tape() as tape: ..., then tape.backward(loss)
detach: write kl.clone(x, requires_grad=False)
clone: write kl.clone(x)
requires_grad_: write x.requires_grad = True
at: write x[i] = value, or a kernel where a gradient is needed
block_until_ready: write kl.synchronize()
len|length: write len(x)
gradient|gradients: write x.grad, when tape.backward(loss) has run
grad_fn: a tape knows what was computed: show it as the value of a cell
is_leaf: every array with requires_grad=True gets a gradient
zero_grad: write tape.zero(), or x.grad.zero_()
cpu: write x.to('cpu'), or x.numpy() for NumPy
cuda: write x.to('cuda')
mT|swapaxes: write x.transpose((1, 0))
permute: write x.transpose((1, 0, 2))
dot|inner: write x @ y
cumsum: write kl.utils.array_scan(x, out)
type: write kl.array(x, dtype=...)
float: write kl.array(x, dtype=float)
double: write kl.array(x, dtype=kl.float64)
int: write kl.array(x, dtype=int)
fill: write x.fill_(value)
zero: write x.zero_()
data: write x.numpy() for the elements, x.ptr for their address
sum|mean|astype|copy|tolist|T|to_numpy: write x.contiguous().{name}
ravel: write x.flatten()
squeeze|unsqueeze: write x.reshape(...), or x[0]
append: an array keeps its size: make a longer one with kl.zeros, and copy into it
nbytes: write x.numpy().nbytes
itemsize: write kl.types.type_size_in_bytes(x.dtype)
abs|sqrt|exp|log|sin|cos|tan|tanh: write kl.map(kl.{name}, x)
pow: write x ** y
relu: write kl.map(kl.max, x, 0.0)
clip|clamp: write kl.map(kl.clamp, x, low, high)
norm: write np.linalg.norm(x.numpy()) on the host, or (x * x).sum() ** 0.5 where a gradient is needed
max|min|argmax|argmin|std|var|any|all|sort|argsort|prod|round: write x.numpy().{name}() on the host, or
    a kernel where a gradient is needed
""")
"""Attributes of arrays."""

FIXED = Table(r"""
dtype: write y = kl.array(x, dtype=...) for converted numbers, x.view(...) for the same bytes
type: write y = kl.array(x, dtype=...)
shape|ndim: write y = x.reshape(...), or x.flatten(): a view of the same memory
size: an array keeps its size: make another with kl.zeros, and copy into it
strides: slice or transpose it, or write kl.array(ptr=..., strides=...)
ptr: make another array: kl.array(ptr=..., shape=..., dtype=...)
device: write y = x.to(device)
is_contiguous: write y = x.contiguous()
""")
"""Attributes of arrays that cannot be assigned."""

KERNELS = Table(r"""
launch|run|forward|call|apply: write kl.launch(kernel, dim=n, inputs=[...]), or kernel[n](...)
show|display|plot|view|code|adj|adjoint: show it as the value of a cell, or write kl.show(kernel): its
    adjoint stands beside its source
tangent: %%kernel --show tangent shows it; kernel.jvp([...]) is the program
backward: record its launch, and ask the tape: tape.backward(loss)
grad: write kl.func.grad(function)(x) of a function that launches it
jacobian: write kl.autograd.jacobian(kernel, dim=n, inputs=[...], outputs=[...])
gradcheck: write kl.autograd.gradcheck(kernel, dim=n, inputs=[...], outputs=[...])
trace: write kl.trace(kernel, thread, dim=n, inputs=[...])
args: its parameters are in inspect.signature(kernel)
""")
"""Attributes of kernels."""

FUNCTIONS = Table(r"""
grad|value_and_grad|jvp|vjp|jacfwd|jacrev|hessian|hvp|vmap: write kl.func.{name}(f), of the function f
gradcheck|jacobian|taylor_test: write kl.autograd.{name}(f, inputs=[...])
trace|graph|contributions: write kl.{name}(f, ...), of the function f and its arguments
backward: write kl.func.grad(f)(...); a tape goes back from arrays
show|display|plot|view|code|adj|adjoint|tangent: show it as the value of a cell
""")
"""Attributes of functions for kernels."""

TAPES = Table(r"""
gradient|grad|grads: call tape.backward(loss); then x.grad is the gradient of an array x with
    requires_grad=True
watch|watched_variables: every array that is created with requires_grad=True is watched
zero_grad: write tape.zero()
clear: write tape.reset()
step: optimizers step: kl.optim.Adam([x]).step([x.grad])
jacobian: write kl.autograd.jacobian(kernel, dim, inputs, outputs), or kl.func.jacrev(function)(x)
hessian: write kl.func.hessian(function)(x)
stop_recording: a tape records what runs inside `with kl.Tape() as tape:`; pass record_tape=False to a
    launch that is not to be recorded
start|stop|record: a tape records what runs inside `with kl.Tape() as tape:`
plot|show: show the tape as the value of a cell, or write tape.visualize()
""")
"""Attributes of tapes."""

OPTIMISERS = Table(r"""
param_groups: set optimizer.lr; parameters with another rate have an optimiser of their own
state_dict: parameters are arrays: x.numpy() is what to keep
update: call optimizer.step([x.grad])
""")
"""Attributes of optimisers."""


# ----------------------------------------------------------------------------------------------- public names


PUBLIC_NAMES = Table(r"""
tile\w*|launch_tiled: tiles are not part of the language => write a loop over the elements
(Mesh|Bvh|HashGrid|mesh|bvh|hash_grid)(_|[A-Z]|$)\w*: meshes and spatial queries are not part of the
    language => pass points and indices as arrays
(Volume|volume)(_|$)\w*: sparse volumes are not part of the language => use an array of 3 dimensions
(Texture|texture)(\d|_|[A-Z]|$)\w*: textures are not part of the language => use an array of 2 or 3
    dimensions, and lerp
capture_\w+: CUDA graphs in files are not part of kernelab => capture what runs straight on: with
    kl.ScopedCapture() as capture
(Scoped)?(Mempool\w*|PeerAccess|CudaProfiler|Allocator|MemoryTracker)|\w+_external_stream: memory pools and
    profilers of CUDA are left to the driver => leave it out: a device's memory comes from its own pool
(timing|TIMING|set_mempool|set_peer|get_mempool)_\w+: memory pools and profilers of CUDA are left to the
    driver => leave it out: a device's memory comes from its own pool
((to|from)_)?(jax|paddle)|jax_\w+|(dtype|device)_(to|from)_(jax|paddle): there is no bridge to this library
    by name => pass its arrays to kl.from_dlpack, and kernelab's to its own from_dlpack
fixedarray: arrays of a fixed size are local to a kernel => make one in the kernel: zeros(shape=(3,),
    dtype=float)
\w*fabricarray\w*: arrays of USD's Fabric are not part of the library => copy them into an array
fem|sim|sparse|render: this part of Warp is not part of kernelab => write what you need of it as kernels
print_diagnostics|print_memory_report: there is a command for it => run `kernelab doctor` in a terminal, or
    `!kernelab doctor` in a cell
(get|set)_logger|Logger|ScopedLog\w+: kernelab writes no log => it speaks by errors, warnings and print
compile_aot_module|load_aot_module|get_cuda_\w+|get_cpu_kernel_cache_key|get_suggested_block_size|(un)?map_cuda_device|\w+_ipc_handle|ModuleBuildOptions|clear_lto_cache:
    this is about how Warp builds and runs modules => kernelab builds each kernel by itself, when it is
    first launched
dense_(gemm|chol|subs|solve)\w*|graph_coloring_\w+|GraphColoringAlgorithm: this part of Warp is not part of
    kernelab => write it as a kernel, or use SciPy where no gradient is needed
block_dim: the CPU has no blocks => pass the number to the kernel as an argument
address|address_of: kernels have no addresses => hand the array and the index over, or use kl.ref
tensor|asarray|as_tensor|Tensor: arrays are made by array => write kl.array(...)
random: NumPy draws such numbers => write kl.array(np.random.default_rng(0).normal(size=n), dtype=float)
arange|linspace|logspace|eye|rand|randint|meshgrid|stack|concatenate|cat|tile_like: NumPy makes such
    arrays => write kl.array(np.{name}(...), dtype=float)
sum|mean: it is a method of arrays => write x.{name}()
prod|cumsum: arrays are reduced by kl.utils => write kl.utils.array_sum(x), array_inner, array_scan
relu: it is a maximum => write kl.map(kl.max, x, 0.0)
norm: it is an operation of vectors => write kl.length(v), or (x * x).sum() ** 0.5 of an array
plot|imshow: arrays show themselves => write x as the last line of a cell, or plt.{name}(x)
backward: a tape goes back => write tape.backward(loss)
minimize: optimisers minimise => write kl.optim.Adam([x], lr=0.1).minimize(f)
grad|value_and_grad|vmap|jvp|vjp|jacfwd|jacrev|hessian|hvp: transforms are in kl.func => write
    kl.func.{name}
jacobian|jacobian_fd|gradcheck|gradcheck_tape: it is in kl.autograd => write kl.autograd.{name}
no_grad|inference_mode: only what a Tape records is differentiated => launch outside of the with block
jit|njit|vectorize: kernels are compiled by a decorator or a cell => write @kl.kernel, or %%kernel
float|int: the types of Python serve => write {name}, kl.float64, kl.int8, ...
math: operations are names of kernelab itself => write kl.sin(x), kl.exp(x), ...
warp_type_to_np_dtype: there is a function for it => write kl.dtype_to_numpy(dtype)
device: devices are asked for by get_device => write kl.get_device("cpu")
manual_seed|seed: random numbers come from states in kernels => write state = rand_init(seed, tid())
linear|cg|cr|gmres|bicgstab|LinearOperator|preconditioner|batched_matmul|adj_(batched_)?matmul: linear
    algebra of whole arrays is not part of kernelab => use SciPy, with the product by the matrix as a kernel
matmul: arrays have an operator for it => write a @ b
(MarchingCubes|marching_cubes)\w*: surfaces are not part of the language => use scikit-image
build|context|codegen: this is about how Warp builds and runs modules => kernelab builds each kernel by
    itself, when it is first launched
nn|Parameter: there are no layers => write kernels; kl.optim has SGD and Adam
""")
"""By name, for `kernelab` and its public modules."""


def missing(module: str, name: str, names: Iterable[str]) -> KernelAttributeError:
    """The error for a name that a public module has not: why and what to write instead, or one like it."""
    guidance = PUBLIC_NAMES.find(name)
    if guidance is None:
        return KernelAttributeError.of_name(f"{module} has no {name}", None, name, names)
    return KernelAttributeError.of_name(f"{module} has no {name}: {guidance.reason}", guidance.hint, name)


def face(module: str, names: Sequence[str]) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a public module, for what it has not and for what it has."""

    def answer(name: str) -> NoReturn:
        raise missing(module, name, names)

    return answer, lambda: [*names]


class Offers:
    """An object of which completion shows the names that serve a user, and not the machinery."""

    __slots__ = ()
    OFFERED: ClassVar[tuple[str, ...]] = ()

    def __dir__(self) -> list[str]:
        """The names that a completer offers."""
        return sorted({*(name for name in super().__dir__() if name.startswith("__")), *self.OFFERED})


class FunctionHints(Offers):
    """The part of a function for kernels that answers what it has not."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raises KernelAttributeError that says what to write instead."""
        message = f"a function for kernels has no {name}"
        raise KernelAttributeError.of_name(message, FUNCTIONS.hint(name) or None, name, dir(self))

    def __getitem__(self, grid: object) -> NoReturn:
        """Raises LaunchError: a function has no grid."""
        raise LaunchError.of("a function for kernels has no grid", "kernel", "call it: f(...)")
