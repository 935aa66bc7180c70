"""Local values: writes to components, rows and fields, copies and re-assignment, local arrays."""

import numpy as np

from tests.contract.agree import gradients_are_right

X = [0.7, -0.4, 1.3, 0.2, -0.9]
V = [[0.3, -1.2, 0.8], [1.1, 0.4, -0.5]]


def test_a_component_that_is_written_loses_the_gradient_of_what_it_held() -> None:
    text = """
def k(v: array[vec3d], x: array[float64], y: array[float64]):
    i = tid()
    p = v[i]
    p.y = x[i] * x[i]
    y[i] = p.x * p.y + p.y * p.z
"""
    found = gradients_are_right(text, 2, v=V, x=X, y=[0.0] * 2)
    assert not found["v"][:, 1].any()
    assert found["v"][:, 0].all()


def test_a_component_may_be_chosen_at_run_time_and_changed_in_place_in_a_loop() -> None:
    text = """
def k(v: array[vec3d], x: array[float64], y: array[float64]):
    i = tid()
    p = v[i]
    for j in range(7):
        p[j % 3] *= x[j % 5] + 0.5
        p[(i + j) % 3] += p.x * p.z
        p.y = sin(p.y)
    y[i] = dot(p, p)
"""
    gradients_are_right(text, 2, v=V, x=X, y=[0.0] * 2)


def test_elements_and_rows_of_a_matrix_are_written() -> None:
    text = """
def k(m: array[mat22d], x: array[float64], y: array[float64]):
    i = tid()
    q = m[i]
    q[0, 1] = x[0] * x[1]
    for j in range(3):
        q[j % 2, 1] *= x[j]
        q[1] = q[0] * x[j] + q[1]
    y[i] = q[0, 1] * q[1, 0] + q[0, 0] * q[1, 1]
"""
    m = np.array([[[0.4, 0.1], [-0.3, 1.0]], [[1.2, -0.7], [0.5, 0.9]]])
    gradients_are_right(text, 2, m=m, x=X, y=[0.0] * 2)


def test_a_component_of_an_element_of_an_array_is_written_where_it_stands() -> None:
    text = """
def k(v: array[vec3d], x: array[float64]):
    i = tid()
    v[i].x = v[i].y * x[i]
    v[i][2] *= x[i + 1]
    v[i].y += v[i].x * v[i].z
"""
    gradients_are_right(text, 2, v=V, x=X)


def test_an_element_of_a_view_in_a_tuple_is_written_where_it_stands() -> None:
    text = """
def k(x: array2d[float64], y: array[float64]):
    i = tid()
    rows = (x[0], x[1])
    rows[0][i] = rows[0][i] * rows[1][i]
    y[i] = rows[0][i] * rows[0][i] + rows[1][i]
"""
    gradients_are_right(text, 3, x=[[0.7, -0.4, 1.3], [0.2, -0.9, 0.6]], y=[0.0] * 3)


def test_a_copy_of_a_vector_keeps_what_it_was_when_the_original_changes() -> None:
    text = """
def k(v: array[vec3d], y: array[float64]):
    i = tid()
    p = v[i]
    q = p
    q.x = p.y * p.z
    p = p * q.x
    q[1] += p.x
    y[i] = dot(p, q)
"""
    gradients_are_right(text, 2, v=V, y=[0.0] * 2)


def test_a_vector_is_assigned_anew_in_one_branch_and_carried_by_a_loop() -> None:
    text = """
def k(v: array[vec3d], x: array[float64], y: array[float64]):
    i = tid()
    p = v[i]
    for j in range(5):
        if x[j] > 0.0:
            p = cross(p, v[1 - i]) * 0.5 + p
        else:
            p.z = p.x * x[j]
    y[i] = p.x + p.y * p.z
"""
    gradients_are_right(text, 2, v=V, x=X, y=[0.0] * 2)


def test_the_fields_of_a_struct_are_written_also_inside_another_struct() -> None:
    text = """
class Inner:
    a: float64
    b: vec3d

class Outer:
    c: float64
    inner: Inner

def k(v: array[vec3d], x: array[float64], y: array[float64]):
    i = tid()
    s = Outer(x[i], Inner(x[i] * x[0], v[i]))
    for j in range(4):
        s.inner.b[j % 3] *= s.c
        s.c = sin(s.c) + s.inner.a
        if x[j] < 0.0:
            s.inner.a += x[j] * s.inner.b.x
    y[i] = s.c * s.inner.a + s.inner.b.y
"""
    gradients_are_right(text, 2, v=V, x=X, y=[0.0] * 2)


def test_a_struct_is_copied_by_assignment_and_its_copy_changed() -> None:
    text = """
class Pair:
    a: float64
    b: float64

def k(x: array[float64], y: array[float64]):
    i = tid()
    p = Pair(x[i], x[i + 1])
    q = p
    q.a = q.a * p.b
    p.b = q.a * q.a
    y[i] = p.a * p.b + q.b * q.a
"""
    gradients_are_right(text, 2, x=X, y=[0.0] * 2)


def test_a_function_that_changes_its_argument_changes_a_copy() -> None:
    text = """
def grown(p: vec3d, s: float64):
    p.x = p.x * s
    p = p * p.x
    return p.y + p.x

def k(v: array[vec3d], x: array[float64], y: array[float64]):
    i = tid()
    p = v[i] * x[0]
    y[i] = grown(p, x[i]) * p.x
"""
    gradients_are_right(text, 2, v=V, x=X, y=[0.0] * 2)


def test_a_local_array_is_read_and_overwritten_in_loops() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    a = zeros(4, dtype=float64)
    for j in range(9):
        a[j % 4] = a[(j + 1) % 4] * x[j % 5] + x[i]
        a[(i + j) % 4] *= 0.9
        if a[0] > 1.5:
            break
    y[i] = a[0] * a[1] + a[2] * a[3]
"""
    gradients_are_right(text, 3, x=X, y=[0.0] * 3)


def test_nested_loops_of_constant_length_change_a_local_array_and_an_array_in_place() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    a = zeros(2, dtype=float64)
    for j in range(3):
        for l in range(2):
            a[l] = sin(a[l] + x[j]) * x[l]
            y[l] = y[l] * a[1 - l] + y[1 - l]
        y[0] = y[0] * y[1]
    y[1] *= a[0] * a[1] + float64(i)
"""
    gradients_are_right(text, 2, x=X, y=[0.5, -0.7])


def test_a_while_loop_around_a_loop_changes_an_array_in_place() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    j = 0
    while j < 3 and y[0] < 9.0:
        for l in range(2):
            y[l] = y[l] * x[j] + y[1 - l] * y[l]
        j += 1
"""
    gradients_are_right(text, 1, x=X, y=[0.5, -0.7])


def test_a_local_array_that_is_made_in_a_loop_is_new_in_every_iteration() -> None:
    text = """
def k(x: array[float64], y: array[float64]):
    i = tid()
    s = x[i]
    for j in range(4):
        a = zeros((2, 2), dtype=float64)
        a[j % 2, 0] = s * x[j]
        a[0, 1] += a[0, 0] * a[1, 0] + s
        s = a[0, 1] + a[1, 0]
    y[i] = s * s
"""
    gradients_are_right(text, 2, x=X, y=[0.0] * 2)


def test_the_components_of_a_quaternion_are_written() -> None:
    text = """
def k(v: array[vec3d], x: array[float64], out: array[float64]):
    i = tid()
    q = quatd(x[0], x[1], x[2], 1.0)
    q[3] = x[i] * x[i] + 1.0
    q[i] *= x[3]
    out[i] = q[0] * q[1] + q[2] * q[3] * v[i].x
"""
    import kernelab as kl
    from kernelab.autograd import gradcheck

    kernel = kl.compile(text)["k"]
    v = kl.array(np.array(V), dtype=kl.vec3d, requires_grad=True)
    x = kl.array(np.array(X), dtype=kl.float64, requires_grad=True)
    assert gradcheck(kernel, 2, inputs=[v, x], outputs=[kl.zeros(2, kl.float64, requires_grad=True)])


def test_a_function_returns_rows_and_parts_of_the_arrays_that_it_is_handed() -> None:
    text = """
def row(v: array[vec3d], x: array[float64], i: int):
    if x[i] > 0.5:
        return x[i:], v[i]
    return x[i + 1:], v[i + 1]

def k(v: array[vec3d], x: array[float64], y: array[float64]):
    i = tid()
    part, p = row(v, x, i)
    part[0] *= part[1]
    y[i] = part[0] * p.x + part[2] * p[i] * x[i]
"""
    v = [[0.3, -1.2, 0.8], [1.1, 0.4, -0.5], [0.2, 0.9, 0.7]]
    gradients_are_right(text, 2, v=v, x=X, y=[0.0] * 2)


def test_values_as_large_as_the_stiffness_of_a_tetrahedron_are_products_and_are_written() -> None:
    text = """
def k(m: array[mat12x12d], u: array[vec12d], y: array[float64]):
    i = tid()
    f = m[i] * u[i]
    for a in range(12):
        f[a] *= f[11 - a] + 0.1
    y[i] = dot(f, u[i])
"""
    rng = np.random.default_rng(5)
    gradients_are_right(text, 1, m=rng.normal(size=(1, 12, 12)), u=rng.normal(size=(1, 12)), y=[0.0])
