"""Hints for names of Warp, NumPy and PyTorch that kernelab lacks, and the names that completion offers."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NoReturn

from kernelab.errors import KernelAttributeError
from kernelab.guidance.hint_table import Table

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
compile_aot_module|load_aot_module|get_cuda_\w+|get_cpu_kernel_cache_key|get_suggested_block_size|(un)?map_cuda_device|\w+_ipc_handle|DeterministicMode|ModuleBuildOptions|clear_lto_cache:
    this is about how Warp builds and runs modules => kernelab builds each kernel by itself, when it is
    first launched
dense_(gemm|chol|subs|solve)\w*|graph_coloring_\w+|GraphColoringAlgorithm: this part of Warp is not part of
    kernelab => write it as a kernel, or use SciPy where no gradient is needed
handle: handles of meshes and volumes are not part of the language => write kl.uint64 for a number
block_dim: the CPU has no blocks => pass the number to the kernel as an argument
address|address_of: kernels have no addresses => hand the array and the index over, or use kl.ref
tensor|asarray|as_tensor|Tensor: arrays are made by array => write kl.array(...)
arange|linspace|logspace|eye|rand|randint|random|meshgrid|stack|concatenate|cat|tile_like: NumPy makes such
    arrays => write kl.array(np.linspace(0, 1, 5), dtype=float) and the like
sum|mean|prod|cumsum: arrays are reduced by kl.utils => write kl.utils.array_sum(x), array_inner, array_scan
grad|value_and_grad|vmap|jvp|vjp|jacfwd|jacrev|hessian|hvp: transforms are in kl.func => write
    kl.func.{name}
jacobian|jacobian_fd|gradcheck|gradcheck_tape: it is in kl.autograd => write kl.autograd.{name}
no_grad|inference_mode: only what a Tape records is differentiated => launch outside of the with block
jit|njit|vectorize: kernels are compiled by a decorator or a cell => write @kl.kernel, or %%kernel
float|int: the types of Python serve => write {name}, kl.float64, kl.int8, ...
math: operations are names of kernelab itself => write kl.sin(x), kl.exp(x), ...
warp_type_to_np_dtype|np_dtype_to_warp_type: there are functions for it => write kl.dtype_to_numpy(dtype),
    or kl.dtype_from_numpy(dtype)
device: devices are asked for by get_device => write kl.get_device("cpu")
manual_seed|seed: random numbers come from states in kernels => write state = rand_init(seed, tid())
linear|cg|cr|gmres|bicgstab|LinearOperator|preconditioner|batched_matmul|adj_(batched_)?matmul: linear
    algebra of whole arrays is not part of kernelab => use SciPy, with the product by the matrix as a kernel
matmul: arrays have an operator for it => write a @ b
(MarchingCubes|marching_cubes)\w*: surfaces are not part of the language => use scikit-image
build|context|codegen: this is about how Warp builds and runs modules => kernelab builds each kernel by
    itself, when it is first launched
nn|Module|Parameter: there are no layers => write kernels; kl.optim has SGD and Adam
""")
"""By name, for `kernelab` and its public modules."""


def missing(module: str, name: str, names: Iterable[str]) -> KernelAttributeError:
    """The error for a name that a public module has not: why and what to write instead, or one like it."""
    guidance = PUBLIC_NAMES.find(name)
    if guidance is None:
        return KernelAttributeError.of(f"{module} has no {name}", None, name, names)
    return KernelAttributeError.of(f"{module} has no {name}: {guidance.reason}", guidance.hint, name)


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
