"""Hints for attributes that arrays, kernels, tapes and optimisers lack."""

from kernelab.guidance.hint_table import Table

ARRAYS = Table(r"""
backward: launch on a tape, and ask it: with kl.Tape() as tape: ..., then tape.backward(loss)
detach: write kl.clone(x, requires_grad=False)
clone: write kl.clone(x)
requires_grad_: write x.requires_grad = True
grad_fn: a tape knows what was computed: show it as the value of a cell
is_leaf: every array with requires_grad=True gets a gradient
zero_grad: write tape.zero(), or x.grad.zero_()
cpu: write x.to('cpu'), or x.numpy() for NumPy
cuda: write x.to('cuda')
mT|swapaxes: write x.transpose((1, 0))
permute: write x.transpose((1, 0, 2))
dot: write kl.utils.array_inner(x, y)
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
squeeze: write x.reshape(...), or x[0]
unsqueeze: write x.reshape(...)
append: an array keeps its size: make a longer one with kl.zeros, and copy into it
nbytes: write x.numpy().nbytes
itemsize: write kl.types.type_size_in_bytes(x.dtype)
abs|sqrt|exp|log|sin|cos|tanh|pow|relu|clip|clamp: apply a function to every element: kl.map(lambda a: ...,
    x)
max|min|argmax|argmin|std|var|any|all|sort|argsort|prod|norm|round: write x.numpy().{name}() on the host, or
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
zero_grad: write tape.zero(), or x.grad.zero_() for one parameter
param_groups: set optimizer.lr; parameters with another rate have an optimiser of their own
state_dict: parameters are arrays: x.numpy() is what to keep
update: call optimizer.step([x.grad])
""")
"""Attributes of optimisers."""
