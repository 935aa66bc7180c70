"""The tape: records what runs inside a ``with`` block and computes its gradients.

with Tape() as tape:
    launch(simulate, dim=n, inputs=[x], outputs=[y])
    launch(loss, dim=n, inputs=[y], outputs=[l])
tape.backward(l)                                          # x.grad, y.grad
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from contextvars import Token
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelab import hooks
from kernelab.autodiff.records.adjoint_buffers import Adjoints, Spare
from kernelab.autodiff.records.backward import (
    ADDING,
    BackwardPlan,
    Puller,
    check,
    publish_inputs,
    sweep,
    tell,
)
from kernelab.autodiff.records.cuts import distinct
from kernelab.autodiff.records.hazards import POLICIES, Guard, Overwrite
from kernelab.autodiff.records.provenance import Provenance
from kernelab.autodiff.records.recording import Recording
from kernelab.autodiff.records.records import LaunchRecord, Record, Scope
from kernelab.autodiff.tape.seeds import (
    Gradients,
    Habits,
    Seeds,
    clear_gradients,
    count_pass,
    earlier_passes,
    final_ones,
    is_own_gradient,
    kept,
    seeded,
    seeds_of,
    warn_of_growing_loss,
)
from kernelab.autodiff.transforms.base_level import BASE
from kernelab.autodiff.transforms.levels import Level
from kernelab.backend.cuda.launch_config import BLOCK, config_of
from kernelab.errors import Diagnostic, KernelValueError, NotFiniteError, Related, TapeError, counted
from kernelab.guidance.bad_calls import explains_bad_calls
from kernelab.hooks import Displayed
from kernelab.runtime.array.array import array
from kernelab.runtime.array.array_attributes import GIVEN, own_gradients
from kernelab.runtime.context.conversion import HostArray, described
from kernelab.runtime.context.garbage import put_off
from kernelab.runtime.context.recorder import RECORDER, Place, Recorder, caller, refusal, warn
from kernelab.runtime.host.struct_instances import Instance
from kernelab.runtime.host.structarray import leaves_of
from kernelab.runtime.kernel.kernel import Kernel
from kernelab.runtime.kernel.signature import structs_in
from kernelab.runtime.launch.call import bind
from kernelab.runtime.launch.footprint import grid_of
from kernelab.settings import Policy, settings

if TYPE_CHECKING:
    from kernelab.autodiff.tape.measures import Magnitude, Norms, Profile

# -------------------------------------------------------------------------------------------------- observed


class Observed:
    """A tape as it is looked at."""

    __slots__ = ("_cotangents", "_findings", "_magnitudes", "_norms", "_recording", "_sweeps")
    _recording: Recording

    def __init__(self) -> None:
        self._findings: tuple[Diagnostic, ...] = ()
        self._magnitudes: list[Magnitude] | None = None
        self._sweeps = 0
        self._cotangents: Mapping[array, HostArray] | None = None
        self._norms: tuple[tuple[int, int], Norms] | None = None

    def since(self, number: int) -> Sequence[Record]:
        return tuple(self._recording.records[number:])

    @property
    def epoch(self) -> int:
        """The number of resets so far."""
        return self._recording.epoch

    def observe(self) -> None:
        """Measure from here on how long launches take, and how large adjoints are in each backward pass.

        What shows a tape asks for it; a launch then takes a tenth of a microsecond more.
        """
        if self._recording.times is None:
            self._recording.times = {}
            self._magnitudes = []

    @property
    def times(self) -> Mapping[int, int]:
        """The time of launches in nanoseconds since the tape is observed, by the number from 1."""
        return self._recording.times or {}

    @property
    def provenance(self) -> Provenance:
        """What the host has taken from arrays, and where its values came back."""
        return self._recording.provenance

    @property
    def overwrites(self) -> Sequence[Overwrite]:
        """The overwrites of elements that an adjoint needs, in order."""
        return self._recording.guard.overwrites

    @property
    def findings(self) -> Sequence[Diagnostic]:
        """The warnings and errors of the last `backward`: chains that end, values that are not finite."""
        return self._findings

    @property
    def magnitudes(self) -> Sequence["Magnitude"]:
        """The norms of adjoints in the order of the last `backward`, if the tape was observed then."""
        return self._magnitudes or ()

    @property
    def sweeps(self) -> int:
        """The number of times `backward` began or was reset; `magnitudes` grow while it stays the same."""
        return self._sweeps

    @property
    def last_cotangents(self) -> Mapping[array, HostArray] | None:
        """The seeds of the last `backward`, as `backward(grads=...)` takes them.

        None where there was none, where it stayed on a device, or where they are many numbers and the tape
        was not observed then.
        """
        given = self._cotangents
        return given and {target: np.full(target.outline().shape, one) for target, one in given.items()}


FEW = 64
"""How many records leave the collector so little to visit that it is not worth while to pause it."""


class Tape(Observed, Habits, Displayed):
    """Records launches and copies, and computes gradients by `backward`.

    `overwrite` says what happens when an array is overwritten, inside the ``with`` block or after it, though
    a recorded launch still needs what it held: ``"save"`` keeps the old bytes, so the gradient stays right,
    ``"warn"`` warns and goes on with the new ones, ``"error"`` raises TapeError at the overwriting line.
    The default is ``"save"``, unless `kernelab.config` says otherwise.

    >>> x = kl.array([1.0, 2.0], requires_grad=True)
    >>> with kl.Tape() as tape:
    ...     y = kl.map(lambda v: v * v, x)
    >>> tape.backward(grads={y: kl.ones_like(y)})
    >>> x.grad.list()
    [2.0, 4.0]
    """

    __slots__ = ("__weakref__", "_entered", "_seeds", "_spare", "_token")

    @explains_bad_calls(
        check_finite="write tape.backward(loss, check_finite=True)", loss="write tape.backward(loss)"
    )
    def __init__(self, overwrite: Policy | None = None) -> None:
        overwrite = settings().overwrite if overwrite is None else overwrite
        if not isinstance(overwrite, str) or overwrite not in POLICIES:
            message = f"overwrite={overwrite!r} is not a policy of a tape"
            hint = 'use "save", "warn" or "error"; the loss is for tape.backward(loss)'
            raise KernelValueError.of(message, "overwrite", hint)
        self._recording = Recording(Guard(overwrite))
        self._token: Token[Recorder | None] | None = None
        self._entered: Place | None = None
        self._seeds: list[array] = []
        self._spare: Spare = {}
        super().__init__()

    def __repr__(self) -> str:
        saved = f", {self.saved_bytes:,} bytes saved" if self.saved_bytes else ""
        return f"<tape of {counted(len(self), 'record')}{saved}>"

    # -------------------------------------------------------------------------------------- recording

    def __enter__(self) -> "Tape":
        if isinstance(RECORDER.get(), Level):
            message = "a transform runs this function, and a tape would not see through it"
            hint = "take the gradient here with kl.func.grad or kl.func.vjp; for record_func, custom_vjp"
            raise refusal(TapeError, message, "nested", hint)
        if RECORDER.get() is not None:
            message = "a tape is recording already: one tape cannot be opened inside another"
            raise refusal(TapeError, message, "nested", "use the tape that is open")
        place = caller()
        if self._entered is not None and len(self):
            message = f"this tape already holds {counted(len(self), 'record')}; entering it again adds more"
            hint = "open a new Tape() in this cell, or call reset() first"
            related = (Related("it was entered before here:", self._entered.span),)
            warn(Diagnostic(message, place.span, "entered-again", hint=hint, related=related), place)
        self._entered = place
        self._recording.guard.swept = False
        self._token = RECORDER.set(self._recording)
        return self

    def __exit__(self, *_: object) -> None:
        hint = "write `with tape:` around what it is to record"
        if self._token is None:
            raise refusal(TapeError, "this tape is not open, so it cannot be closed", "not-open", hint)
        try:
            self._recording.ends()
        finally:
            try:
                RECORDER.reset(self._token)
            except ValueError:
                message = "a tape is closed in the thread, and in the task, that has opened it"
                raise refusal(TapeError, message, "not-open", hint) from None
            self._token = None

    def __len__(self) -> int:
        return len(self._recording.records)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._recording.records))

    @property
    def launches(self) -> tuple[LaunchRecord, ...]:
        """The recorded launches, in order."""
        return tuple(record for record in self._recording.records if isinstance(record, LaunchRecord))

    @property
    def overwrite(self) -> str:  # not Policy: Jedi completes no object with a property of a Literal
        """The policy for overwrites of values that a recorded launch still needs."""
        return self._recording.guard.policy

    @property
    def saved_bytes(self) -> int:
        """The number of bytes saved because arrays were overwritten that an adjoint needs."""
        return self._recording.guard.saved_bytes

    @property
    def seeds(self) -> Sequence[array]:
        """The arrays from which `backward` went the last time, none before that."""
        return tuple(self._seeds)

    @property
    def is_recording(self) -> bool:
        """Whether its ``with`` block is running."""
        return self._token is not None

    def record_func(self, backward: Callable[[], object], arrays: Sequence[array]) -> None:
        """Call `backward` at this point of the backward pass.

        It finds the gradients of what it differentiates in their ``.grad``, and adds to the ``.grad`` of what
        that was computed from.  `arrays` are all arrays that it handles so; while it runs, they hold what
        they hold now, unless `overwrite` forbids to save what is overwritten: then `mark_read` the arrays
        whose values it needs, to hear of later writes.  In a function that a transform runs it is noted for
        the transform, whatever the tape; it then has to be linear in the gradients.  Raises TapeError for
        what cannot be called, GradientError in `vmap`.
        """
        given: object = backward
        if not callable(given):
            message = f"record_func takes a function without arguments, not {described(given)}"
            hint = "write tape.record_func(lambda: ..., arrays=[x, y])"
            raise refusal(TapeError, message, "function", hint)
        if isinstance(arrays, array) or not all(isinstance(each, array) for each in arrays):
            given = [] if isinstance(arrays, array) else [one for one in arrays if not isinstance(one, array)]
            what = described(next(iter(given), arrays))
            hint = "write tape.record_func(backward, arrays=[x, y])"
            raise refusal(TapeError, f"record_func takes a list of arrays, and not {what}", "function", hint)
        recorder = RECORDER.get()
        if isinstance(recorder, Level):
            recorder.record_func(backward, tuple(leaf for each in arrays for leaf in leaves_of(each)))
            return
        if recorder not in (None, self._recording):
            message = "record_func adds to a tape, and this function runs for a checkpoint"
            raise refusal(TapeError, message, "nested", "make the function by kl.func.custom_vjp")
        self._recording.add_function(backward, tuple(arrays))

    def record_launch(
        self,
        kernel: Kernel,
        dim: int | Sequence[int],
        max_blocks: int = 0,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        device: object = None,
        block_dim: int = 0,
        metadata: object = None,
    ) -> None:
        """Record a launch that was made elsewhere, with the same arguments; `block_dim` 0 is the usual."""
        grid = grid_of(dim)
        arguments, parts = [*inputs, *outputs], [grid.packed]
        structs = tuple(structs_in(arguments))
        bind(kernel, arguments, parts)
        config = config_of(block_dim or BLOCK, max_blocks)
        self._recording.add(LaunchRecord(kernel, grid, tuple(arguments), tuple(parts), structs, config))

    def record_scope_begin(self, scope_name: str, metadata: Any = None) -> None:
        """Begin a named scope; scopes group records when the tape is shown."""
        self._recording.scope_begin(scope_name, metadata)

    def record_scope_end(self, remove_scope_if_empty: bool = True) -> None:
        """End the innermost scope; one without records is dropped if `remove_scope_if_empty`."""
        if not self._recording.scope_end(remove_scope_if_empty):
            raise refusal(TapeError, "no scope is open", "scope", "call record_scope_begin first")

    @property
    def scopes(self) -> Sequence[Scope]:
        """The scopes that have ended, in the order of their ends."""
        return tuple(self._recording.scopes)

    def to_svg(self) -> str:
        """The tape as an SVG file: time down, arrays across; needs neither Graphviz nor a running kernel."""
        return hooks.picture(self)

    def visualize(
        self,
        filename: str | PathLike[str] | None = None,
        simplify_graph: bool = True,
        hide_readonly_arrays: bool = False,
        array_labels: Mapping[array, str] | None = None,
        choose_longest_node_name: bool = True,
        ignore_graph_scopes: bool = False,
        track_inputs: Sequence[array] | None = None,
        track_outputs: Sequence[array] | None = None,
        track_input_names: Sequence[str] | None = None,
        track_output_names: Sequence[str] | None = None,
        graph_direction: str = "LR",
    ) -> str:
        """The graph of launches and arrays as text in the DOT language, written to `filename` if given.

        Arrays that require gradients are green; scopes are frames, and so are launches that repeat the same
        on the same arrays, shown once, unless `simplify_graph` or `ignore_graph_scopes` says otherwise.
        `hide_readonly_arrays` leaves out arrays that no launch changes, but for the tracked ones.  An array
        has its label or tracked name, else that of its variable where this is called, else of a parameter.
        """
        return hooks.graph(
            self,
            filename,
            simplify_graph,
            hide_readonly_arrays,
            array_labels,
            choose_longest_node_name,
            ignore_graph_scopes,
            track_inputs,
            track_outputs,
            track_input_names,
            track_output_names,
            graph_direction,
        )

    # -------------------------------------------------------------------------------------- backward

    @explains_bad_calls(retain_graph="a tape keeps what it recorded: backward can be called again")
    def backward(
        self,
        loss: array | None = None,
        grads: Mapping[array, Any] | None = None,
        *,
        check_finite: bool | None = None,
    ) -> None:
        """Compute the gradients of `loss`, an array of one number, or of what `grads` gives cotangents for.

        Leaves with ``requires_grad`` get the gradient added to their ``.grad``, everything else has it
        replaced, as is that of elements whose own gradient is their cotangent, ``grads={h: h.grad}``.
        Without arguments the gradients that the final arrays hold are the cotangents, and those that somebody
        has put into arrays on the way.  No primal data change.  Raises TapeError where no gradient can come
        of it.

        With `check_finite`, a loss or a gradient that is NaN or infinite raises NotFiniteError, which names
        the launch, the thread and the line where a value first turned so, or the gradient that was so before;
        so it is, unless it is False, where a launch was checked (`kernelab.config.check`).

        >>> x = kl.array([3.0], requires_grad=True)
        >>> with kl.Tape() as tape:
        ...     loss = kl.map(lambda v: v * v, x)
        >>> tape.backward(loss)
        >>> x.grad.list()
        [6.0]
        """
        asked: object = self
        if not isinstance(asked, Tape):  # kl.Tape.backward(loss)
            hint = "write with kl.Tape() as tape: ..., then tape.backward(loss)"
            raise refusal(TapeError, "backward is asked of a tape, not of the class Tape", "loss", hint)
        recording, self._findings, here = self._recording, (), caller(2)
        seeds = seeds_of(recording, loss, grads)
        are_held = loss is None and grads is None
        own = [*seeds] if are_held else []
        for target, seed in seeds.items() if grads else ():
            if seed.__class__ is not array or seed.allocation is target.allocation.adjoint:
                own += [target] * is_own_gradient(target, seed)
        recorder = RECORDER.get()
        given = [] if recorder is None else [one for one in seeds.values() if isinstance(one, array)]
        if recorder is not None:
            recorder.adjoint_alone("a backward pass", given)
        token = RECORDER.set(None)
        try:
            with (
                put_off() if len(recording.records) > FEW else nullcontext(),
                own_gradients(self._arrays) if GIVEN else nullcontext(),
            ):
                plan = BackwardPlan(tuple(recording.records), seeds)
                cuts = check(plan, recording)
                self._findings = tuple([cut.describe() for cut in distinct(cuts)]) if cuts else ()
                tell(plan, recording, cuts, own)
                wanted = recording.is_checked if check_finite is None else check_finite
                puller = self._begin(plan, seeds, wanted)
                if loss is not None:
                    warn_of_growing_loss(plan, loss, here)
                if recording.has_large and puller is None and plan.narrow is None:
                    plan.leave()
                adjoints = seeded(seeds, Adjoints(self._spare, plan.leaving, plan.settled), are_held)
                if own:
                    clear_gradients(own)  # these are adjoints now: none of it counts twice
                earlier = earlier_passes(plan)
                sweep(plan, adjoints, BASE, puller)
                with ADDING.lock:
                    publish_inputs(plan, adjoints)
                count_pass(plan, earlier, here)
        except NotFiniteError as error:
            self._findings = (*self._findings, *error.diagnostics)
            raise
        finally:
            RECORDER.reset(token)
        if recorder is not None:
            primals = plan.published()
            recorder.gone_back(
                [*primals, *given], [p.allocation.adjoint for p in primals if p.allocation.adjoint]
            )
        self._spare = adjoints.end(BASE) if recording.guard.swept else {}
        recording.guard.swept = True

    def _begin(self, plan: BackwardPlan, seeds: Seeds, check_finite: bool) -> Puller | None:
        """Begin a sweep; returns how it takes adjoints through records, None for the plain way."""
        self._seeds = list(seeds)
        self._sweeps += 1
        self._cotangents = kept(seeds, self._magnitudes is not None)
        puller = None
        if check_finite:
            from kernelab.autodiff.tape.finite import check_seeds, check_sums, pull_finite

            puller = pull_finite
            check_seeds(plan.records, plan.live, seeds)
            check_sums(one.source for _, one in plan.leaves())
        if self._magnitudes is None:
            return puller
        from kernelab.autodiff.tape.measures import measuring

        self._magnitudes = []
        return measuring(puller, self._magnitudes)

    def measure(self, loss: array | None = None, grads: Mapping[array, Any] | None = None) -> "Norms":
        """Measure the norms of the adjoints after each record and each iteration of a loop.

        The sweep runs on copies: no `.grad` changes.  It starts as `backward` would; without arguments as the
        last one did, before that from ones for all that the tape computes last.  A shown tape has the result
        under "backward".  Loops of launches of up to 65,536 threads are run again by the interpreter.
        """
        from kernelab.autodiff.tape.measures import Measurement, Norms, sweep_on_copies

        seeds = self._seeds_to_measure(loss, grads)
        records, measurement = tuple(self._recording.records), Measurement()
        self._cotangents = kept(seeds, is_watched=True)
        sweep_on_copies(records, seeds, measurement.pull)
        self._magnitudes, self._sweeps = measurement.magnitudes, self._sweeps + 1
        self._norms = (self.epoch, len(records)), Norms(tuple(measurement.steps))
        return self._norms[1]

    def norms(self) -> "Norms":
        """What `measure` found the last time; it measures first where the tape has changed since."""
        measured = self._norms
        if measured is None or measured[0] != (self.epoch, len(self)):
            return self.measure()
        return measured[1]

    def profile(self, loss: array | None = None, grads: Mapping[array, Any] | None = None) -> "Profile":
        """The time of the launches of each kernel, forward and backward, and the bytes that they move.

        Launches run again on copies of what they write, on the values that arrays hold now, and adjoints on
        copies as in `measure`.
        """
        from kernelab.autodiff.tape.measures import profile_of

        return profile_of(tuple(self._recording.records), self._seeds_to_measure(loss, grads))

    def _seeds_to_measure(self, loss: array | None, grads: Mapping[array, Any] | None) -> Seeds:
        if loss is not None or grads is not None:
            return seeds_of(self._recording, loss, grads)
        return self._cotangents or final_ones(self._recording)

    def cotangents(self, loss: array | None, grads: Mapping[array, Any] | None) -> Seeds:
        """The seeds of `backward`; raises TapeError where these are not seeds of this tape."""
        return seeds_of(self._recording, loss, grads)

    # -------------------------------------------------------------------------------------- gradients

    @property
    def gradients(self) -> Mapping[Any, Any]:
        """The gradient of each array with ``requires_grad`` that took part, by array, and of each struct.

        Raises KernelKeyError, which says how to ask for it, where there is none.
        """
        structs = [struct for record in self.launches for struct in record.structs]
        pairs = ((primal, primal.grad) for primal in (*self._arrays(), *structs))
        return Gradients((primal, gradient) for primal, gradient in pairs if gradient is not None)

    def get_adjoint(self, a: Any) -> Any:
        """The gradient of an array or a struct, None if it does not require gradients."""
        if not isinstance(a, array | Instance):
            message = f"get_adjoint takes an array or a struct, not {described(a)}"
            raise refusal(TapeError, message, "argument", "pass the array that the launch got")
        return a.grad

    def zero(self) -> None:
        """Set the gradients of all arrays that took part to zero."""
        self._spare = {}
        with own_gradients(self._arrays) if GIVEN else nullcontext():
            clear_gradients(primal for primal in self._arrays() if primal.allocation.adjoint is not None)

    def reset(self) -> None:
        """Forget all records and saved bytes, and set the gradients to zero."""
        self.zero()
        self._recording.clear()
        self._seeds.clear()
        self._entered = self._cotangents = None
        self._findings = ()
        self._sweeps += 1
        if self._magnitudes is not None:
            self._magnitudes = []

    def _arrays(self) -> list[array]:
        arrays: dict[array, None] = dict.fromkeys(self._seeds)
        for record in self._recording.records:
            arrays |= dict.fromkeys((*record.read, *record.written))
        return [primal for primal in arrays if primal.requires_grad]
