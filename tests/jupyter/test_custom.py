"""Rules for derivatives in the cells of a notebook."""

from tests.jupyter.conftest import Notebook

FUNCTION = "%%kernel\ndef f(x: float):\n    return x * x"
KERNEL = "%%kernel --show all\ndef go(x: array[float], y: array[float]):\n    y[tid()] = f(x[tid()])"
RULE = "%%kernel\n@func_grad(f)\ndef adj_f(x: float, adj_ret: float):\n    adjoint[x] += {} * x * adj_ret"
GRADIENT = """
x, y = kl.array([3.0], requires_grad=True), kl.zeros(1, dtype=float, requires_grad=True)
with kl.Tape() as tape:
    go[1](x, y)
tape.backward(grads={y: kl.ones(1, dtype=float)})
x.grad.list()"""


def test_a_rule_of_another_cell_holds_for_kernels_that_are_compiled_after_it(notebook: Notebook) -> None:
    assert notebook.run(FUNCTION).error_name == ""
    told = notebook.run(RULE.format("2.0"))
    assert told.error_name == ""
    assert "kernels that were compiled before do without adj_f" in told.text
    shown = notebook.run(KERNEL)
    assert "x_bar = 2.0 * " in shown.text or "+= 2.0 * " in shown.text
    assert notebook.run(GRADIENT).text == "[6.0]"


def test_a_wrong_rule_is_warned_of_under_the_cell_of_the_kernel(notebook: Notebook) -> None:
    notebook.run(FUNCTION)
    notebook.run(RULE.format("5.0"))
    outcome = notebook.run(KERNEL)
    assert outcome.error_name == ""
    assert "adj_f gives" in outcome.stream
