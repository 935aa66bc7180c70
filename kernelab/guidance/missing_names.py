"""Tables of hints for the host: what to write instead of a name that an object or a module does not have.

`missing` and `Offers` raise the errors.  The tables are written as in `hint_tables`.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from opcode import opmap
from typing import ClassVar, NoReturn

import numpy as np

from kernelab.errors import KernelAttributeError, LaunchError
from kernelab.guidance.hint_tables import Guidance, Table

ARRAYS = Table(r"""
backward: launch on a tape, and ask it: with kl.Tape() as tape: ..., then tape.backward(loss)
detach: write kl.stop_gradient(x), or kl.clone(x, requires_grad=False)
clone: write kl.clone(x)
requires_grad_: write x.requires_grad = True
at: write x[i] = value, x[i] += value, or a kernel where a gradient is needed
from_numpy: write x.assign(values)
devices|memory_kind: write x.device
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
dot|inner|matmul|mm|bmm: write x @ y
copy_: write x.assign(y)
masked_fill|where: write kl.where(mask, y, x)
gather|index_select|scatter|scatter_add|index_add: write x[indices], y[indices] = x or y[indices] += x
softmax: write e = kl.exp(x - x.max()), then e / e.sum()
roll|repeat|take: write x[indices]: for roll x[np.roll(np.arange(len(x)), 1)]
expand|expand_as|broadcast_to: operators stretch an axis of length 1: write x * kl.ones(...)
cumsum: write kl.utils.array_scan(x, out)
type: write x.astype(...)
float|int: write x.astype({name})
double: write x.astype(kl.float64)
half: write x.astype(kl.float16)
long: write x.astype(kl.int64)
numel|nelement: write x.size
t: write x.T
add|add_|sub|sub_|mul|mul_|div|div_: write x + y, x - y, x * y or x / y; with = for x in place, as in x += y
square: write x * x
reciprocal: write 1.0 / x
sigmoid: write kl.map(f, x), with def f(t: float): return 1.0 / (1.0 + exp(-t)) in a %%kernel cell
fill: write x.fill_(value)
zero: write x.zero_()
data: write x.numpy() for the elements, x.ptr for their address
tolist|to_numpy: write x.contiguous().{name}()
view: write x.contiguous().view(...)
ravel: write x.flatten()
squeeze|unsqueeze: write x.reshape(...), or x[0]
save|savez|savetxt|tofile|dump: write np.save(file, x.numpy())
append: an array keeps its size: make a longer one with kl.zeros, and copy into it
nbytes: write x.numpy().nbytes
itemsize: write kl.types.type_size_in_bytes(x.dtype)
abs|sqrt|cbrt|exp|log|log2|log10|sin|cos|tan|asin|acos|atan|sinh|cosh|tanh|sign|floor|ceil|round|trunc|erf|isnan|isinf|isfinite:
    write kl.{name}(x)
pow: write x ** y
relu: write kl.max(x, 0.0)
var: write ((x - x.mean()) ** 2).mean()
std: write ((x - x.mean()) ** 2).mean() ** 0.5
amax|amin: write x.max(axis=0), x.min(axis=0)
clip|clamp: write kl.clamp(x, low, high)
norm: write np.linalg.norm(x.numpy()) on the host, or (x * x).sum() ** 0.5 where a gradient is needed
[xyzw]: of an array of vectors write kl.map(lambda v: v.{name}, x), or x.view(kl.float32)[:, 0]
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
show|display|plot|view|draw|print|listing|code|ir|adj|adjoint: show it as the value of a cell, or write
    kl.show(kernel): its adjoint stands beside its source
tangent: %%kernel --show tangent shows it; kernel.jvp([...]) is the program
backward: record its launch, and ask the tape: tape.backward(loss)
grad: write kl.func.grad(function)(x) of a function that launches it
py_func|signatures|inspect_\w+|parallel_diagnostics: show it as the value of a cell, or write kl.show(kernel)
jacobian: write kl.autograd.jacobian(kernel, dim=n, inputs=[...], outputs=[...])
gradcheck: write kl.autograd.gradcheck(kernel, dim=n, inputs=[...], outputs=[...])
trace: write kl.trace(kernel, thread, dim=n, inputs=[...])
args|signature: its parameters are in inspect.signature(kernel)
cpp|ptx|sass|cuda: write %%kernel --show {name} at the head of its cell
compile|build|jit: it is built when it is first launched
overloads|(get|add)_overload: write kl.overload(kernel, [types]), which is the kernel for these types
func: what Python would run is kernel.__wrapped__
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
plot|show|display|draw|view|graph|print|summary: write kl.show(tape), or tape as the last line of a cell
save\w*|to_(png|html|file): write tape.to_svg(), which is the text of a picture
records?_?list|records|launches|ops|operations: write list(tape), or kl.show(tape)
""")
"""Attributes of tapes."""

JACOBIANS = Table(r"""
plot|show|display|draw|view: write kl.show(jacobians), or jacobians as the last line of a cell
numpy|to_numpy|toarray|tolist|todense|dense|full|matrix|shape|T|tocsr: it has one for each input and output:
    write jacobians[0, 0].numpy()
""")
"""Attributes of the Jacobians of a function, of which each is a matrix."""

JACOBIAN = Table(r"""
plot|imshow|show|display|draw|view: write plt.imshow(jacobian.numpy()), or kl.show(jacobians) of all of them
to_numpy|toarray|todense|dense|full|matrix|values|tolist: write jacobian.numpy()
tocsc|tocoo|sparse|to_sparse: write jacobian.tocsr()
""")
"""Attributes of one Jacobian."""

REPORTS = Table(r"""
plot|show|display|draw|view|summary|print: write kl.show(report), or report as the last line of a cell
ok|success|succeeded|passed|valid|result|is_ok: a report is true where the check has passed: if report: ...
order: write report.slope
max_error|error|errors: the worst is report.worst()
""")
"""Attributes of the reports of checks."""

DEVICES = Table(r"""
stream|has_stream: write kl.get_stream(device)
null_stream: write kl.Stream(device), or kl.get_stream(device)
set_stream: write kl.set_stream(stream)
can_access: write kl.can_access(device, other)
\w+_allocator|memset|memtile: memory is that of arrays: kl.zeros(n, device=...)
context|context_guard|has_context|make_current: kl.ScopedDevice(device) makes it the default one
max_shared_memory_per_block|is_uva|is_primary|uuid|pci_bus_id|is_\w+_supported|is_\w+_access_from_\w+:
    CUDA's driver tells of its devices: cuda.bindings.driver.cuDeviceGetAttribute(...)
""")
"""Attributes of devices."""

MODULES = Table(r"""
\w*hash\w*|(get|has|register|resolved?|defer|cpu|failed)_\w+|execs|loader|references|dependents|kernels|functions|structs:
    kernels are not built by module: each is built when it is first launched
""")
"""Attributes of groups of kernels, of which Warp's hold what is built."""

LAUNCHES = Table(r"""
set_param_at_index_from_ctype: write command.set_param_at_index(i, value), with the value itself
set_param_by_name_from_ctype: write command.set_param_by_name(name, value), with the value itself
set_params_from_ctypes: write command.set_params([...]), with the values themselves
params|fwd_args|adj_args: write command.arguments, command.adjoints
run|replay|execute: write command.launch()
bounds|block_dim|max_blocks: write command.dim, command.config
""")
"""Attributes of launches that are prepared once."""

OPTIMISERS = Table(r"""
param_groups: set optimizer.lr; parameters with another rate have an optimiser of their own
state_dict: parameters are arrays: x.numpy() is what to keep
update: call optimizer.step([x.grad])
""")
"""Attributes of optimisers."""


# ----------------------------------------------------------------------------------------------- public names


PUBLIC_NAMES = Table(r"""
(un)?tile\w*|launch_tiled: tiles are not part of the language => write a loop over the elements
prange|ndrange|grid: threads take the place of the loop => write i = tid() in a kernel, and launch n of them:
    kernel[n](...)
field: arrays are made by zeros and array => write kl.zeros(n, dtype=float, requires_grad=True)
template|data_oriented|root: kernels take arrays => write x: array[float] in the parameters, and pass
    kl.zeros(n)
lax|scan|fori_loop|while_loop|cond|switch: loops and branches are those of Python => write for and if, in a
    kernel or in the function that is differentiated
custom_jvp|custom_gradient|custom_root: rules of your own are pairs of functions => write
    kl.func.custom_vjp(f, back), or @func_jvp(f) in a %%kernel cell
linearize: a tangent is asked for with its direction => write kl.func.jvp(f, (x,), (x_dot,))
make_jaxpr: a kernel shows what it computes, and its derivatives => write kl.show(kernel)
complex(64|128)?: there are no complex numbers => use dtype=kl.vec2 for the real and the imaginary part
linalg: NumPy has it => write np.linalg.solve(a.numpy(), b.numpy()) on the host, in a function of
    kl.func.custom_vjp where a gradient is needed; a norm is (x * x).sum() ** 0.5
solve_triangular|cho_\w+|expm|logm|sqrtm: SciPy has it => write scipy.linalg.{name}(x.numpy(), ...) on the
    host, in a function of kl.func.custom_vjp where a gradient is needed
cholesky|solve|p?inv|det|slogdet|lstsq|eigh?|eigvals\w*|svd|qr|matrix_power: NumPy has it => write
    np.linalg.{name}(x.numpy(), ...) on the host, in a function of kl.func.custom_vjp where a gradient is
    needed; in kernels inverse(m), determinant(m), svd3(m), ... take small matrices
fft: NumPy has it => write np.fft.fft(x.numpy()) on the host, in a function of kl.func.custom_vjp where a
    gradient is needed
checkpoint|remat: it is a name of kernelab itself => write kl.checkpoint(f, x)
tree|tree_\w+: structs and arguments take the place of trees => pass each array as an argument, with
    argnums=(0, 1)
stop_gradient: it is an operation of the language => write kl.stop_gradient(x), or stop_gradient(x[i])
    in a kernel
detach: it is called stop_gradient => write kl.stop_gradient(x)
device_put: arrays know their device => write x.to("cuda")
debug: kernels print => write print("x =", x[i]) in a kernel, or kl.trace(kernel, 0, dim=n, inputs=[x])
ad: tapes are names of kernelab itself => write with kl.Tape() as tape: ..., then tape.backward(loss)
sync: it is called synchronize => write kl.synchronize()
GUI|ui|profiler: pictures and times are for Python => write plt.imshow(x.numpy()), or with
    kl.ScopedTimer("name"):
(HashGrid|hash_grid)(_|[A-Z]|$)\w*: spatial queries are not part of the language => find neighbours on the
    host, as with scipy.spatial.cKDTree, and pass their indices as an array; or loop over all points
(Mesh|Bvh|mesh|bvh)(_|[A-Z]|$)\w*: meshes and spatial queries are not part of the language => pass points
    and indices as arrays
(Volume|volume)(_|$)\w*: sparse volumes are not part of the language => use an array of 3 dimensions
(Texture|texture)(\d|_|[A-Z]|$)\w*: textures are not part of the language => use an array of 2 or 3
    dimensions, and lerp
capture_\w+: CUDA graphs in files are not part of kernelab => capture what runs straight on: with
    kl.ScopedCapture() as capture
CaptureMode: there is one way to capture => leave it out: with kl.ScopedCapture() as capture
(Scoped)?(Mempool\w*|PeerAccess|Allocator)|\w+_external_stream|(set_mempool|set_peer|get_mempool)_\w+|MemoryKind|\w+[Aa]llocator:
    memory pools of CUDA are left to the driver => leave it out: a device's memory comes from its own pool
(timing|TIMING|cuda_profiler)_\w+|TimingResult|ScopedCudaProfiler: kernelab does not list what a device does
    => write with kl.ScopedTimer("name", synchronize=True), and run the program under NVIDIA's profilers
print_memory_report|ScopedMemoryTracker: kernelab keeps no account of memory => ask Python's tracemalloc for
    the host, and the driver for a device: nvidia-smi
stream_(to|from)_torch: streams go by their address => write
    kl.Stream(cuda_stream=torch.cuda.current_stream().cuda_stream)
((to|from)_)?(jax|paddle)|jax_\w+|Jax\w+|(dtype|device|stream)_(to|from)_(jax|paddle): there is no bridge to
    this library by name => pass its arrays to kl.from_dlpack, and kernelab's to its own from_dlpack
transform_expand: the type takes the numbers => write kl.transform(*t)
fixedarray: arrays of a fixed size are local to a kernel => make one in the kernel: zeros(shape=(3,),
    dtype=float)
\w*fabricarray\w*: arrays of USD's Fabric are not part of the library => copy them into an array
render: this part of Warp is not part of kernelab => draw x.numpy() with Matplotlib
examples: this part of Warp is not part of kernelab => copy the file that you need to a folder of your own
fem|sim|sparse|\w*GL(Buffer|Texture)\w*: this part of Warp is not part of kernelab => write what
    you need of it as kernels
print_diagnostics: there is a command for it => run `kernelab doctor` in a terminal, or `!kernelab doctor` in
    a cell
(get|set)_logger|Logger|ScopedLog\w+: kernelab writes no log => it speaks by errors, warnings and print
compile_aot_module|load_aot_module|get_cuda_\w+|get_cpu_kernel_cache_key|get_suggested_block_size|(un)?map_cuda_device|\w+_ipc_handle|ModuleBuildOptions|clear_lto_cache:
    this is about how Warp builds and runs modules => kernelab builds each kernel by itself, when it is
    first launched
dense_(gemm|chol|subs|solve)\w*|graph_coloring_\w+|GraphColoringAlgorithm: this part of Warp is not part of
    kernelab => write it as a kernel, or use SciPy where no gradient is needed
breakpoint: no debugger stops in a kernel => write print("x =", x[i]) in it, or
    kl.trace(kernel, 0, dim=n, inputs=[x])
block_dim: the CPU has no blocks => pass the number to the kernel as an argument
address|address_of: kernels have no addresses => hand the array and the index over, or use kl.ref
tensor|asarray|as_tensor|Tensor: arrays are made by array => write kl.array(...)
random|rand|rand_like|randn_like|normal|uniform: NumPy draws such numbers => write
    kl.array(np.random.default_rng(0).normal(size=n), dtype=float)
randint: NumPy draws such numbers => write kl.array(np.random.default_rng(0).integers(0, 10, size=n))
arange|linspace|logspace|eye|meshgrid: NumPy makes such arrays => write kl.array(np.{name}(...), dtype=float)
cat|concat|vstack: its name is concatenate => write kl.concatenate([x, y])
hstack: its name is concatenate => write kl.concatenate([x, y], axis=1)
sum|mean: it is a method of arrays => write x.{name}()
reshape|flatten|astype: it is a method of arrays => write x.{name}(...)
squeeze|unsqueeze|expand_dims: it is a method of arrays => write x.reshape(...)
maximum|minimum: its name is max or min => write kl.max(x, y), or kl.min(x, y)
clip: its name is clamp => write kl.clamp(x, low, high)
square|sqr|power: arrays have an operator for it => write x ** 2
rsqrt: arrays have an operator for it => write 1.0 / kl.sqrt(x)
fma: arrays have an operator for it => write x * y + z
logical_(and|or|xor|not): arrays have an operator for it => write (x > 0.0) & (x < 1.0), with | for or, ^ for
    xor and ~ for not
inner|vdot: arrays have an operator for it => write x @ y
roll|repeat|take|gather|index_select: an index picks elements => write x[indices]: for roll
    x[np.roll(np.arange(len(x)), 1)]
scatter: an index picks elements => write y[indices] = x
flip\w*: a slice picks elements => write x[::-1]
diff: slices of arrays serve => write x[1:] - x[:-1]
trapz|trapezoid: slices of arrays serve => write (0.5 * (y[1:] + y[:-1]) * (x[1:] - x[:-1])).sum()
swapaxes|moveaxis|permute: it is a method of arrays => write x.transpose((1, 0))
ravel: it is a method of arrays => write x.flatten()
logsumexp|log_softmax: it is not an operation => write m = x.max(), then m + kl.log(kl.exp(x - m).sum())
sigmoid: it is not an operation => write kl.map(f, x), with def f(t: float): return 1.0 / (1.0 + exp(-t)) in
    a %%kernel cell
mm|einsum|tensordot: arrays have an operator for it => write a @ b, or a kernel
textbook: it is a method of kernels => write kernel.textbook()
save|load: NumPy keeps arrays => write np.save(file, x.numpy()), and kl.array(np.load(file))
numpy|np: it is a package of its own => write import numpy as np
Any|Callable|Generic|Optional: Python has it => write from typing import {name}
print|len|range|bool|round|list|tuple|dict: Python has it => write {name}
prod|cumsum: arrays are reduced by kl.utils => write kl.utils.array_sum(x), array_inner, array_scan
var: it is a mean of squares => write ((x - x.mean()) ** 2).mean()
std: it is the root of a mean of squares => write ((x - x.mean()) ** 2).mean() ** 0.5
amax|amin: it is a method of arrays => write x.max(axis=0), x.min(axis=0)
relu: it is a maximum => write kl.max(x, 0.0)
norm: it is an operation of vectors => write kl.length(v), or (x * x).sum() ** 0.5 of an array
plot|imshow: arrays show themselves => write x as the last line of a cell, or plt.{name}(x)
backward|gradient: a tape goes back => write tape.backward(loss), then x.grad
GradientTape: it is called Tape => write with kl.Tape() as tape:
Variable: arrays are made by array => write kl.array(..., dtype=float, requires_grad=True)
SGD|Adam: it is in kl.optim => write kl.optim.{name}([x], lr=0.1)
minimize: optimisers minimise => write kl.optim.Adam([x], lr=0.1).minimize(f)
grad|value_and_grad|vmap|jvp|vjp|jacfwd|jacrev|hessian|hvp: transforms are in kl.func => write
    kl.func.{name}
jacobian(_fd|_plot)?|gradcheck(_tape)?|taylor_test|plot_(sparsity|kernel_jacobians): it is in
    kl.autograd => write kl.autograd.{name}
no_grad|inference_mode|enable_grad|set_grad_enabled: only what a Tape records is differentiated => compute
    it outside of `with kl.Tape()`
jit|njit|vectorize|guvectorize: kernels are compiled by a decorator or a cell => write @kl.kernel, or
    %%kernel
float|int: the types of Python serve => write {name}, kl.float64, kl.int8, ...
double|half|long|[fiu]\d+: types say their bits => write kl.float64, kl.float16, kl.int64, ...
Vector|Matrix|float[234]|mat[234]: types say their size => write kl.vec3, kl.mat33, ...
math: operations are names of kernelab itself => write kl.sin(x), kl.exp(x), ...
warp_type_to_np_dtype: there is a function for it => write kl.dtype_to_numpy(dtype)
cuda|gpu|cpu: devices go by names => write device="cuda", or device="cpu"
device: devices are asked for by get_device => write kl.get_device("cpu")
manual_seed|seed: random numbers come from states in kernels => write state = rand_init(seed, tid())
linear|cg|cr|gmres|bicgstab|LinearOperator|preconditioner|batched_matmul|adj_(batched_)?matmul: linear
    algebra of whole arrays is not part of kernelab => use SciPy, with the product by the matrix as a kernel
matmul: arrays have an operator for it => write a @ b
(MarchingCubes|marching_cubes)\w*: surfaces are not part of the language => use scikit-image
build\w*|context|codegen: this is about how Warp builds and runs modules => kernelab builds each kernel by
    itself, when it is first launched
softmax: it is not an operation => write e = kl.exp(x - x.max()), then e / e.sum()
nn|Parameter|Linear|Conv\dd|dropout|cross_entropy|mse_loss|layer_norm|batch_norm|one_hot: there are no
    layers => write kernels; kl.optim has SGD and Adam
RMSprop|Adagrad|Adadelta|Adamax|AdamW|NAdam|LBFGS|Rprop: kl.optim has SGD and Adam => write
    scipy.optimize.minimize(kl.func.as_numpy(f), start, jac=True)
""")
"""By name, for `kernelab` and its public modules."""


def of_numpy(name: str) -> Guidance | None:
    """The guidance for a name that an array, or kernelab, lacks and NumPy has."""
    function = getattr(np, name, None)
    if isinstance(function, type) or not callable(function):
        return None
    hint = f"write np.{name}(x.numpy()) on the host, or a kernel where a gradient is needed"
    return Guidance("NumPy has it", hint)


def missing(module: str, name: str, names: Iterable[str]) -> KernelAttributeError | ImportError:
    """The error for a name that a public module has not: why and what to write instead, or one like it."""
    guidance = PUBLIC_NAMES.find(name) or of_numpy(name)
    reason, hint = ("", None) if guidance is None else (f": {guidance.reason}", guidance.hint)
    close = names if guidance is None else ()
    error = KernelAttributeError.of_name(f"{module} has no {name}{reason}", hint, name, close)
    return ImportError(str(error), name=module) if _is_imported() else error


def _is_imported() -> bool:
    """Whether `from module import name` asks, for which Python hides the text of an AttributeError."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "kernelab":
        frame = frame.f_back
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def face(module: str, names: Sequence[str]) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a public module, for what it has not and for what it has."""

    def answer(name: str) -> NoReturn:
        __tracebackhide__ = True  # IPython shows the frames of the user
        raise missing(module, name, names)

    return answer, lambda: [*names]


class Offers:
    """An object of which completion shows the names that serve a user, and not the machinery."""

    __slots__ = ()
    OFFERED: ClassVar[tuple[str, ...]] = ()

    def __dir__(self) -> list[str]:
        """The names that a completer offers."""
        return sorted({*(name for name in super().__dir__() if name.startswith("__")), *self.OFFERED})


class Answers:
    """An object that answers for an attribute that it does not have, by a table."""

    __slots__ = ()
    NAMED: ClassVar[str]
    HINTS: ClassVar[Table]

    def __getattr__(self, name: str) -> NoReturn:
        """Raises KernelAttributeError that says what to write instead."""
        names = [own for own in dir(type(self)) if not own.startswith("_") and own not in ("NAMED", "HINTS")]
        hint = None if name.startswith("_") else self.HINTS.hint(name)
        raise KernelAttributeError.of_name(f"{self.NAMED} has no {name}", hint or None, name, names)


class ReportHints(Answers):
    """The part of a report of a check that answers what it has not."""

    __slots__ = ()
    NAMED = "a report"
    HINTS = REPORTS


class FunctionHints(Offers):
    """The part of a function for kernels that answers what it has not."""

    @staticmethod
    def unwritten_doc(name: str) -> str:
        """What `help` says of a function without a docstring, in place of what its class is."""
        return f"A function for kernels: {name}(...) is its value, kl.func.grad({name})(...) its derivative."

    def __getattr__(self, name: str) -> NoReturn:
        """Raises KernelAttributeError that says what to write instead."""
        message = f"a function for kernels has no {name}"
        raise KernelAttributeError.of_name(message, FUNCTIONS.hint(name) or None, name, dir(self))

    def __getitem__(self, grid: object) -> NoReturn:
        """Raises LaunchError: a function has no grid."""
        raise LaunchError.of("a function for kernels has no grid", "kernel", "call it: f(...)")
