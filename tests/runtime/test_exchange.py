"""Arrays beside other libraries: DLPack both ways, the array interface, views as another type, marks."""

from typing import Any

import numpy as np
import pytest

import kernelab as kl


class Producer:
    """Something that speaks DLPack and nothing else."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_memory_is_shared_by_dlpack_in_both_directions(dtype: Any) -> None:
    data = np.array([1, 0, 1, 0], dtype)
    x = kl.from_dlpack(Producer(data))
    x.fill_(1)
    assert data.tolist() == [1, 1, 1, 1]
    back = np.from_dlpack(x)
    x.zero_()
    assert back.tolist() == [0, 0, 0, 0]
    assert back.dtype == dtype


def test_strided_arrays_and_vectors_keep_their_layout_in_dlpack() -> None:
    v = kl.zeros((4, 2), dtype=kl.vec3)
    shown = np.from_dlpack(v[::2])
    assert shown.shape == (2, 2, 3)
    v.fill_((1, 2, 3))
    assert shown[1, 1].tolist() == [1, 2, 3]
    assert kl.from_dlpack(Producer(np.zeros((5, 3), np.float32)), dtype=kl.vec3).shape == (5,)


def test_the_memory_lives_as_long_as_its_borrower() -> None:
    shown = np.from_dlpack(kl.full(1000, 3.0))
    kl.zeros(1000)
    assert np.all(shown == 3)


def test_a_dlpack_view_counts_as_a_way_by_which_the_host_may_write() -> None:
    x, y = kl.ones(1, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kl.map(lambda a: a * a, x, out=y)
    np.from_dlpack(x)[0] = 5
    with pytest.raises(kl.TapeError, match="changed through a view"):
        tape.backward(grads={y: [1.0]})


def test_read_only_memory_stays_read_only() -> None:
    data = np.zeros(3, np.float32)
    data.flags.writeable = False
    with pytest.raises(kl.KernelValueError, match="read-only"):
        kl.from_dlpack(Producer(data)).fill_(1)


def test_what_speaks_no_dlpack_is_refused() -> None:
    with pytest.raises(kl.KernelTypeError, match="from_dlpack takes an array of another library, not a list"):
        kl.from_dlpack([1.0])


def test_what_hands_over_no_capsule_of_dlpack_is_named() -> None:
    class Library:
        def __init__(self, handed: object) -> None:
            self.handed = handed

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **_: Any) -> object:
            return self.handed

    used = np.zeros(3).__dlpack__()
    kl.from_dlpack(used)
    for handed in (object(), None, used):
        with pytest.raises(kl.KernelTypeError, match="the __dlpack__ of a Library returns no DLPack capsule"):
            kl.from_dlpack(Library(handed))


def test_dlpack_data_on_another_device_are_refused() -> None:
    class Elsewhere(Producer):
        def __dlpack_device__(self) -> Any:
            return 10, 0

    with pytest.raises(kl.KernelTypeError, match="in the memory of neither the CPU nor a CUDA device"):
        kl.from_dlpack(Elsewhere(np.zeros(1)))


def test_the_array_interface_shares_the_memory() -> None:
    class Wrapped:
        def __init__(self, values: Any) -> None:
            self.__array_interface__ = values.__array_interface__
            self.values = values

    x = kl.array([1.0, 2.0, 3.0])
    np.asarray(Wrapped(x))[0] = 7
    assert x.list() == [7, 2, 3]
    data = np.zeros(2, np.float32)
    shared = kl.array(Wrapped(data), copy=False)
    shared.fill_(4)
    assert data.tolist() == [4, 4]


def test_the_array_interface_tells_the_address() -> None:
    x = kl.array(np.arange(12.0).reshape(3, 4), dtype=kl.float64)
    for one in (x, x[1:], x[:, 1], x.T, kl.ones(2, dtype=kl.vec3), kl.zeros(0)):
        data = one.__array_interface__["data"]
        assert data[0] == one.ptr == np.asarray(one).__array_interface__["data"][0]
        assert (data[1], tuple(data)) == (False, (one.ptr, False))
    fixed = np.ones(2)
    fixed.flags.writeable = False
    assert kl.array(fixed, copy=False).__array_interface__["data"] == (fixed.ctypes.data, True)


def test_memory_counts_as_exposed_as_long_as_a_view_by_the_interface_lives() -> None:
    x = kl.array([1.0, 2.0, 3.0])
    view = np.asarray(x)[1:]
    assert x.allocation.is_exposed
    assert kl.array(view, copy=False).allocation is x.allocation
    del view
    assert not x.allocation.is_exposed


def test_a_view_reads_the_same_bytes_as_another_type() -> None:
    x = kl.array([1.0, -2.0])
    assert x.view(kl.int32).list() == np.array([1, -2], np.float32).view(np.int32).tolist()
    m = kl.zeros(1, dtype=kl.vec4, requires_grad=True)
    m.view(kl.mat22).fill_(((1, 2), (3, 4)))
    assert m.numpy().tolist() == [[1, 2, 3, 4]]
    assert m.view(kl.mat22).requires_grad


def test_a_view_of_another_size_or_of_gradients_as_something_else_is_refused() -> None:
    x = kl.zeros(2, requires_grad=True)
    with pytest.raises(kl.KernelTypeError, match="float32 has 4 bytes, float64 has 8"):
        x.view(kl.float64)
    with pytest.raises(kl.KernelTypeError, match="gradients of float64 cannot be read as vec2"):
        kl.zeros(2, dtype=kl.float64, requires_grad=True).view(kl.vec2)


def test_marking_a_write_saves_what_a_tape_needs() -> None:
    x, y = kl.full(1, 3.0, requires_grad=True), kl.zeros(1, requires_grad=True)
    with kl.Tape() as tape:
        kl.map(lambda a: a * a, x, out=y)
    x.mark_read()
    x.mark_write()
    x.host()[0] = 100
    tape.backward(grads={y: [1.0]})
    assert x.grad is not None
    assert x.grad.list() == [6]


def test_gradients_are_retained_wherever_they_are_required() -> None:
    x = kl.zeros(1)
    assert not x.retain_grad
    x.retain_grad = True
    assert x.requires_grad
    x.retain_grad = False
    assert x.retain_grad


def test_components_can_be_viewed_as_the_last_axes_and_back() -> None:
    v = kl.array(np.arange(12.0).reshape(2, 2, 3), dtype=kl.vec3, requires_grad=True)
    flat = v.view(float)
    assert flat.shape == (2, 2, 3) and flat.ptr == v.ptr and flat.requires_grad
    assert (flat.numpy() == v.numpy()).all()
    assert flat.view(kl.vec3).shape == (2, 2) and flat.view(kl.vec3).dtype == kl.vec3
    assert kl.zeros((5, 2, 2)).view(kl.mat22).shape == (5,)
    with pytest.raises(kl.KernelTypeError, match="are not components of vec4"):
        flat.view(kl.vec4)
    with pytest.raises(kl.KernelTypeError, match="vec3 has 12 bytes, float64 has 8"):
        v.view(kl.float64)


def test_a_capsule_hands_the_memory_over_once() -> None:
    x = kl.array([1.0, 2.0, 3.0])
    capsule = kl.to_dlpack(x)
    back = kl.from_dlpack(capsule)
    back.fill_(5.0)
    assert x.list() == [5, 5, 5]
    with pytest.raises(kl.KernelTypeError, match="this DLPack capsule was used before"):
        kl.from_dlpack(capsule)


def test_a_column_of_vectors_is_an_array_of_vectors() -> None:
    assert kl.array(np.ones((5, 4, 1)), dtype=kl.vec4).shape == (5,)
    assert kl.array(np.ones((6, 1)), dtype=kl.vec3).shape == (2,)
    assert kl.array(np.ones((2, 3, 1)), dtype=kl.types.matrix((3, 1), float)).shape == (2,)


def test_memory_from_dlpack_is_shared_or_refused() -> None:
    data = np.array([1, 0, 255], np.uint8)
    x = kl.from_dlpack(Producer(data), dtype=kl.int8)
    assert x.list() == [1, 0, -1]
    x.fill_(7)
    assert data.tolist() == [7, 7, 7]
    assert kl.from_dlpack(Producer(np.array([1, 0], np.int8)), dtype=bool).list() == [True, False]
    for wanted in (float, kl.uint16):
        with pytest.raises(kl.KernelTypeError, match=r"uint8 cannot be shared as (float32|uint16)"):
            kl.from_dlpack(Producer(data), dtype=wanted)
