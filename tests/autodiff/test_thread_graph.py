"""Computation graphs: the values and cotangents of one run, where each comes from, and the picture."""

import json
import re
from collections import defaultdict
from html import unescape
from xml.etree import ElementTree

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelab as kl
from kernelab.autodiff.inspect.thread_graph import ThreadGraph
from kernelab.errors import KernelTypeError, LaunchError
from kernelab.views.kernel.graph_view import FIRST, LAST, Group, folded
from kernelab.views.kernel.layered import GAP, HEIGHT, layout
from tests.strategies import COLUMNS, ROWS, plain_programs

TEXT = """
def g(x: float, y: float):
    return x * y + sin(x)

def inner(a: float, b: float):
    c = a * b
    d = sin(c) + cos(a)
    e = d * d + sqrt(1.0 + c * c)
    return e / (1.0 + d * d)

def nested(a: float, b: float):
    p = inner(a, b)
    return p * inner(b, p)

def bent(u: vec3, m: mat33):
    return dot(m * u, cross(u, vec3(1.0, 2.0, 3.0)))

def chain(x: array[float], n: int, y: array[float]):
    i = tid()
    s = x[i]
    for k in range(n):
        if s > 1.0:
            s = s / (1.0 + x[i + 1])
        else:
            s = s + float(k) * sin(s) * x[i + 1]
    t = 0.0
    while t < s:
        t = t * 0.5 + x[i] + s * s
    y[i] = t * s

def in_place(x: array[float], n: int, y: array[float]):
    i = tid()
    y[i] = x[i]
    for k in range(n):
        y[i] = y[i] * x[i + 1] + y[i]
    y[i] += inner(y[i], x[i])

def private(x: array[float], n: int, y: array[float]):
    i = tid()
    a = zeros(3, dtype=float)
    for k in range(n):
        a[k % 3] = a[(k + 1) % 3] * x[i] + x[i + 1]
    y[i] = a[0] * a[1] + min(a[2], x[i])

@func
def clipped(x: float):
    return min(x, 1.0)

@func_grad(clipped, check=False)
def clipped_grad(x: float, adj_ret: float):
    adjoint[x] += 3.0 * adj_ret

def ruled(x: array[float], n: int, y: array[float]):
    i = tid()
    s = 0.0
    for k in range(n):
        s += clipped(x[i]) * clipped(x[i + 1] * 2.0)
    y[i] = s

def from_the_end(x: array[float], y: array[float]):
    i = tid()
    y[2] = x[0] * x[0]
    y[0] = y[i - 1] * 3.0

def count(n: array[int]):
    n[tid()] += 1
"""
D = kl.compile(TEXT)
X = [0.5, 0.75, 1.25]


def arrays() -> tuple[kl.array, kl.array]:
    return kl.array(X, dtype=float, requires_grad=True), kl.zeros(3, dtype=float, requires_grad=True)


def gathered(graph: ThreadGraph) -> dict[str, float]:
    """What flows back to each element that was read, or number that was given, in all."""
    totals = {flow.target: flow.total for flow in graph.flows}
    found: dict[str, float] = defaultdict(float)
    for number, operation in enumerate(graph.operations):
        if operation.kind == "input" and number in totals:
            found[operation.text] += float(totals[number])
    return found


# ---- what flows


def test_a_function_of_numbers_has_its_values_and_its_gradient() -> None:
    graph = kl.graph(D["g"], 2.0, 3.0)
    assert [operation.text for operation in graph.operations] == [
        "x", "y", "x * y", "sin(x)", "v1 + v2", "result[0] = v3",
    ]  # fmt: skip
    assert gathered(graph) == pytest.approx({"x": 3 + np.cos(2), "y": 2})
    assert [flow.text for flow in graph.flows][-2:] == ["x_bar += v1_bar * y", "y_bar += v1_bar * x"]
    assert set(gathered(kl.graph(D["g"], 2.0, 3.0, adjoints={"result": 0.0})).values()) == {0.0}


@pytest.mark.parametrize("name", ["chain", "in_place", "private", "ruled"])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_what_flows_back_to_the_elements_is_the_gradient_of_the_tape(name: str, n: int) -> None:
    x, y = arrays()
    with kl.Tape() as tape:
        kl.launch(D[name], dim=1, inputs=[x, n], outputs=[y])
    tape.backward(grads={y: kl.ones_like(y)})
    graph = kl.graph(D[name], 0, dim=1, inputs=[*arrays()[:1], n], outputs=[kl.zeros(3, dtype=float)])
    found = gathered(graph)
    assert [found.get(f"x[{i}]", 0.0) for i in range(3)] == pytest.approx(x.grad.numpy().tolist(), rel=1e-5)


HALVES = """
def halves(x: array[{half}], s: {half}, y: array[{half}]):
    i = tid()
    e = x[i] * s
    for q in range(2):
        if e > {half}(1.0):
            e = sqrt(e) * e * s
    v = {vector}(e, x[i], e)
    y[i] += dot(v, v * s) * x[i]
"""


@pytest.mark.parametrize(("half", "vector"), [("float16", "vec3h"), ("bfloat16", "vec3bf")])
def test_cotangents_of_halves_are_float32_as_in_the_adjoint_that_runs(half: str, vector: str) -> None:
    kernel, dtype = kl.compile(HALVES.format(half=half, vector=vector))["halves"], getattr(kl, half)
    x, s = (kl.array(numbers, dtype=dtype, requires_grad=True) for numbers in ([1.5, 3.0], [0.75]))
    y = kl.zeros(2, dtype=dtype, requires_grad=True)
    graph = kl.graph(kernel, 1, dim=2, inputs=[x, s], outputs=[y])
    assert "e_bar" in str(kernel.textbook())
    with kl.Tape() as tape:
        kernel[2](x, s, y)
    tape.backward(grads={y: kl.array([0.0, 1.0], dtype=dtype)})
    meant = {"x[1]": float(x.grad.list()[1]), "s": float(s.grad.list()[0])}
    assert {name: gathered(graph)[name] for name in meant} == pytest.approx(meant, rel=1e-2)


def test_an_element_that_is_counted_from_the_end_is_the_one_that_was_written() -> None:
    x, y = arrays()
    graph = kl.graph(D["from_the_end"], 0, dim=1, inputs=[x], outputs=[y])
    (read,) = [one for one in graph.operations if one.text == "y[-1]"]
    assert [graph.operations[k].text for k in read.operands] == ["y[2] = v3"]


def test_vectors_and_nested_calls_have_the_gradient_of_func() -> None:
    at = (0.5, 1.25)
    meant = kl.func.grad(D["nested"], argnums=(0, 1))(*at)
    assert gathered(kl.graph(D["nested"], *at)) == pytest.approx(
        dict(zip("ab", meant, strict=True)), rel=1e-5
    )
    u, m = kl.vec3(1.0, -2.0, 0.5), kl.mat33(1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 2.0, 0.0, 1.0)
    graph = kl.graph(D["bent"], u, m)
    totals = {graph.operations[flow.target].text: flow.total for flow in graph.flows}
    np.testing.assert_allclose(totals["u"], np.array(kl.func.grad(D["bent"])(u, m)), rtol=1e-5)


@pytest.mark.parametrize("name", ["chain", "in_place", "private", "ruled"])
def test_the_shares_of_a_value_add_up_and_edges_lead_to_what_was_computed_before(name: str) -> None:
    x, y = arrays()
    graph = kl.graph(D[name], 0, dim=1, inputs=[x, 4], outputs=[y])
    sums: dict[int, float] = defaultdict(float)
    for flow in graph.flows:
        sums[flow.target] += float(flow.share)
        assert sums[flow.target] == pytest.approx(float(flow.total), rel=1e-4, abs=1e-6)
        # The inside of a function with a rule is not a way for its cotangent.
        assert flow.target in graph.operations[flow.source].operands or name == "ruled"
    for number, operation in enumerate(graph.operations):
        assert all(operand < number for operand in operation.operands)
    assert y.numpy().tolist() == [0, 0, 0] and x.grad.numpy().tolist() == [0, 0, 0]


def test_adjoints_choose_what_flows_back_and_a_kernel_without_floats_says_why() -> None:
    x, y = arrays()
    seeded = kl.graph(D["chain"], 0, dim=1, inputs=[x, 2], outputs=[y], adjoints={"y": [2.0, 0.0, 0.0]})
    plain = kl.graph(D["chain"], 0, dim=1, inputs=[x, 2], outputs=[y])
    assert gathered(seeded) == pytest.approx({key: 2 * value for key, value in gathered(plain).items()})
    graph = kl.graph(D["count"], 0, dim=1, inputs=[kl.zeros(1, dtype=int)])
    assert graph.flows == () and "no parameter is a float" in str(graph)


def test_what_is_no_kernel_and_a_thread_that_is_none_are_errors() -> None:
    with pytest.raises(KernelTypeError, match="graph takes a kernel and a thread, or a function"):
        kl.graph(3.0)
    with pytest.raises(LaunchError, match="there is no thread 4"):
        kl.graph(D["count"], 4, dim=1, inputs=[kl.zeros(1, dtype=int)])


@pytest.mark.parametrize("shard", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_graph_of_any_program_hands_to_its_inputs_what_the_adjoint_that_runs_does(shard: int) -> None:
    @hypothesis.seed(shard)
    @settings(max_examples=6, database=None)
    @given(plain_programs())
    def check(text: str) -> None:
        check_graph(text)

    check()


def check_graph(text: str) -> None:
    kernel, rng = kl.compile(text)["program"], np.random.default_rng(0)
    shapes = {"x": ROWS + COLUMNS, "a": (ROWS, COLUMNS), "out": (ROWS, COLUMNS)}
    arrays = {name: kl.array(rng.uniform(-1, 1, shape), dtype=kl.float64) for name, shape in shapes.items()}
    arrays["n"] = kl.array(rng.integers(0, COLUMNS, ROWS).astype(np.int32), dtype=int)
    inputs = [arrays[param.hint] for param in kernel.primal.params]
    meant: dict[str, float] = defaultdict(float)
    for seen in kl.trace(kernel, 0, dim=1, inputs=inputs).adjoint:
        if seen.name.startswith("x_bar[") and seen.sign == "+=":
            meant[seen.name.replace("_bar", "")] += float(seen.value)
    graph = kl.graph(kernel, 0, dim=1, inputs=inputs)
    found = {name: total for name, total in gathered(graph).items() if name.startswith("x[")}
    assert found == pytest.approx({name: meant[name] for name in found}, rel=1e-9, abs=1e-12)
    reached = {name for name, total in meant.items() if total}  # a branch not taken adds 0
    assert reached <= found.keys() and "text/html" in graph._repr_mimebundle_()


# ---- what is folded


def boxes(group: Group) -> list[str]:
    return [item.title for item in group.items if isinstance(item, Group)]


def test_loops_and_calls_of_many_operations_are_folded() -> None:
    x, y = arrays()
    loop = folded(kl.graph(D["in_place"], 0, dim=1, inputs=[x, 20], outputs=[y]))
    assert boxes(loop) == ["for k in range(n)", "inner(...)"]
    (iterations,) = [item for item in loop.items if isinstance(item, Group) and item.is_loop]
    assert len(iterations.items) == 20 and not iterations.hidden
    assert boxes(folded(kl.graph(D["nested"], 0.5, 1.0))) == ["inner(...)", "inner(...)"]
    assert boxes(folded(kl.graph(D["g"], 0.5, 1.0))) == []


def test_of_a_long_loop_the_middle_is_left_out_and_still_leads_from_one_box_to_the_next() -> None:
    x, y = arrays()
    graph = kl.graph(D["in_place"], 0, dim=1, inputs=[x, 100], outputs=[y])
    root = folded(graph)
    loop = next(item for item in root.items if isinstance(item, Group) and item.is_loop)
    assert len(loop.items) == FIRST + LAST and len(loop.hidden) == 100 - FIRST - LAST
    assert "76 in the middle are left out" in graph._repr_mimebundle_()["text/html"]
    assert "100 iterations" in graph.to_svg() and 'class="port' not in graph.to_svg()


def test_lines_are_folded_where_there_are_very_many() -> None:
    lines = "\n".join(f"    v = v * x[{k % 3}] + sin(v) * 0.5" for k in range(40))
    text = f"\ndef big(x: array[float], y: array[float]):\n    v = x[0]\n{lines}\n    y[0] = v\n"
    x, y = arrays()
    graph = kl.graph(kl.compile(text)["big"], 0, dim=1, inputs=[x], outputs=[y])
    assert len(graph.operations) > 200 and len(boxes(folded(graph))) == 40


# ---- the picture


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_boxes_lie_apart_and_each_below_those_that_lead_to_it(pairs: list[tuple[int, int]]) -> None:
    edges = [*dict.fromkeys((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])]
    widths = [40.0 + 7 * k for k in range(31)]
    placed = layout(widths, edges)
    for a, b in edges:
        assert placed.places[a][1] + HEIGHT < placed.places[b][1]
        points = [placed.places[a], *placed.passing[a, b], placed.places[b]]
        assert [y for _, y in points] == sorted(y for _, y in points)
    for k, (x, y) in enumerate(placed.places):
        assert x >= 0 and x + widths[k] <= placed.width and y >= 0 and y + HEIGHT <= placed.height
        for j in range(k):
            other, level = placed.places[j]
            assert level != y or other + widths[j] + GAP / 2 <= x or x + widths[k] + GAP / 2 <= other


def test_the_page_has_a_box_for_each_operation_the_steps_and_the_lines_that_they_come_from() -> None:
    x, y = arrays()
    graph = kl.graph(D["chain"], 0, dim=1, inputs=[x, 5], outputs=[y])
    html = graph._repr_mimebundle_()["text/html"]
    steps = json.loads(unescape(re.search(r'data-steps="([^"]*)"', html)[1]))  # type: ignore[index]
    assert len(steps) == len(graph.operations) + len(graph.flows)
    assert {f'data-node="{k}"' for k in range(len(graph.operations))} <= {
        *re.findall(r'data-node="\d+"', html)
    }
    assert all(f"class={link} " in html for _, link, *_ in steps)
    assert "<script>" in html and html.count("</script>") == 1


def test_the_picture_is_a_file_of_its_own() -> None:
    root = ElementTree.fromstring(kl.graph(D["nested"], 0.5, 1.0).to_svg())
    texts = [element.text for element in root.iter() if element.text]
    assert "▸ inner(...)" in texts and "bar 1" in texts


def test_a_graph_is_a_table_in_a_terminal() -> None:
    text = str(kl.graph(D["g"], 2.0, 3.0))
    assert re.search(r"sin\(x\)\s+0\.909297\s+1$", text, re.MULTILINE)
    assert repr(kl.graph(D["g"], 2.0, 3.0)) == "<computation graph of g: 6 operations, 6 steps back>"
