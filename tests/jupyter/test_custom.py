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


def test_a_wrong_rule_is_warned_of_under_its_own_cell_and_once(notebook: Notebook) -> None:
    notebook.run(FUNCTION)
    outcome = notebook.run(RULE.format("5.0"))
    assert outcome.error_name == ""
    assert "adj_f gives" in outcome.stream
    assert "adj_f gives" not in notebook.run(KERNEL).stream
    assert "adj_f gives" in notebook.run(RULE.format("7.0")).stream


def test_a_right_rule_and_one_that_is_not_to_be_compared_are_not_warned_of(notebook: Notebook) -> None:
    notebook.run(FUNCTION)
    assert notebook.run(RULE.format("2.0")).stream == ""
    assert notebook.run(RULE.format("5.0").replace("%%kernel", "%%kernel --no-check")).stream == ""
    assert notebook.run(RULE.format("5.0").replace("func_grad(f)", "func_grad(f, check=False)")).stream == ""


def test_a_wrong_rule_of_a_decorated_function_is_warned_of_under_its_cell(notebook: Notebook) -> None:
    notebook.run("@kl.func\ndef f(x: float) -> float:\n    return x * x")
    rule = "@kl.func_jvp(f)\ndef f_jvp(x: float, x_dot: float):\n    return 3.0 * x * x_dot"
    assert "f_jvp gives" in notebook.run(rule).stream
    assert notebook.run("kl.func.grad(f)(2.0)").stream == ""


def test_a_replay_that_differs_is_warned_of_under_its_cell(notebook: Notebook) -> None:
    notebook.run(FUNCTION)
    replay = "%%kernel\n@func_replay(f)\ndef replay_f(x: float):\n    return x + 1.0"
    assert "replay_f returns" in notebook.run(replay).stream
