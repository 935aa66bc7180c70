"""Mistakes planted in the programs of the course, in the line that ends in ``# !``.

Each is named with its line by what the program says when it runs, or by the first tool that the table of
`docs/wrong-gradients.md` recommends for what one sees.
"""

import numpy as np
import pytest

import kernelab as kl
from tests.support.lesson import Lesson, shown

SQUARE = """
def square(v: float):
    return v * v

@func_grad(square)
def adj_square(v: float, adj_ret: float):  # !
    adjoint[v] += v * adj_ret
"""
STOPPING = "def stopping(speed: float, grip: float):\n    return {}  # !\n"
SLOPES = "slopes = kl.func.grad(stopping, (0, 1))(20.0, 0.8)"

PLANE = """
def plane(places: array2d[float], heights: array[float], w: array[float], loss: array[float]):
    i = tid()
    error = {} - heights[i]{}
    atomic_add(loss, 0, {} / float(len(heights)))
"""
GUESS = "w[0] * places[i, 0] + w[1] * places[i, 1] + w[2]"
FIT = """
rng = np.random.default_rng(0)
places = kl.array(rng.normal(size=(20, 2)), dtype=float)
heights = kl.array(rng.normal(size=20), dtype=float)
w = kl.array([0.1, 0.2, 0.3], dtype=float, requires_grad=True)
for k in range(2):
    loss = kl.zeros(1, dtype=float, requires_grad=True)
    with kl.Tape(overwrite="warn") as tape:
        kl.launch(plane, dim=20, inputs=[places, heights, w], outputs=[loss])
        {}
    tape.backward(loss){}
    tape.zero()
"""

FLOW = """
def flow(u: array[float], a: array[float], new: array[float]):
    i = tid()
    change = 0.0
    if {}:
        change = {}  # !
    new[i] = u[i] + 0.3 * change
"""
HEAT = """
hot = np.where(np.arange(12) < 6, 1.0, 0.0)
def temperatures(a):
    u = kl.array(hot, dtype=float)
    for k in range(4):
        new = kl.zeros(12, dtype=float)
        kl.launch(flow, dim=12, inputs=[u, a], outputs=[new])
        u = new
    return u

a = kl.ones(12, dtype=float)
rows = kl.func.jacrev(temperatures)(a)
"""

DISC = """
def disc(r: array[float], area: array[float]):
    i, j = tid()
    d = length(vec2(0.2 * float(i) - 0.8, 0.2 * float(j) - 0.8)) - r[0]
    covered = {}  # !
    atomic_add(area, 0, covered * 0.04)
"""
AREA = """
def area(r):
    total = kl.zeros(1, dtype=float, requires_grad=True)
    kl.launch(disc, dim=(9, 9), inputs=[r], outputs=[total])
    return total

r = kl.array([0.5], dtype=float, requires_grad=True)
"""
GRADIENT, STEPS = "slope = kl.func.grad(area)(r)", "last = kl.optim.Adam([r], lr=0.01).minimize(area)"

STEP = "def {0}(x: float):\n    {1} = x\n    for k in range(5):\n        {1} = {2}  # !\n    return {1}\n"
EIGHTH = """
def eighth(x: array[float], y: array[float]):
    i = tid()
    s = x[i]
    for k in range(3):
        s = {}  # !
    y[i] = s
"""
ONCE = """
x = kl.array([0.5, 1.5], dtype=float, requires_grad=True)
y = kl.zeros(2, dtype=float, requires_grad=True)
def sweep():
    with kl.Tape(overwrite="warn") as tape:
        kl.launch(eighth, dim=2, inputs=[x], outputs=[y])
        {}
    tape.backward(grads={{y: kl.ones_like(y)}}){}

sweep()
"""
SQUARES = """
u = kl.ones(3, requires_grad=True)
for k in range(2):
    with kl.Tape() as tape:
        loss = (u * u).sum()
    tape.backward(loss)  # !
    u.assign(0.9 * u.numpy())
"""
NOTHING = "def nothing(x: array[float]):\n    x[tid()] = 0.0\n"

SAID = {
    "1 rule": (SQUARE + STOPPING.format("square(speed) / grip").replace("# !", ""), SLOPES),
    "1 cast": (STOPPING.format("float(int(speed * speed / grip))"), SLOPES),
    "1 floor division": (STOPPING.format("speed * speed // grip"), SLOPES),
    "1 cast of one argument": (STOPPING.format("speed * float(int(2.0 * grip))"), SLOPES),
    "2 overwritten leaf": (
        PLANE.format(GUESS, "", "error * error"),
        FIT.format("w.assign(np.zeros(3))  # !", ""),
    ),
    "2 overwritten through a view": (
        PLANE.format(GUESS, "", "error * error"),
        FIT.format("", "").replace("    tape.b", "    w.numpy()[:] = 0.0  # !\n    tape.b"),
    ),
    "2 cast": (PLANE.format(f"float(int({GUESS}))", "  # !", "error * error"), FIT.format("", "")),
    "2 wrapped index": (
        PLANE.format(GUESS.replace("i, 0", "i - 1, 0"), "  # !", "error * error"),
        FIT.format("", ""),
    ),
    "2 forgotten zeroing": (
        PLANE.format(GUESS, "", "error * error"),
        FIT.format("", "  # !").replace("    tape.zero()\n", ""),
    ),
    "3 rounding": ("def valley(x: float):\n    return round(x)  # !\n", "h = kl.func.hessian(valley)(0.3)"),
    "3 overwritten argument": (
        NOTHING,
        """
def energy(u):
    u[1:] = u[1:] - u[:-1]  # !
    return (u * u).sum()

slope = kl.func.grad(energy)(kl.ones(4, dtype=float))
""",
    ),
    "4 forgotten zeroing of steps": (
        NOTHING,
        SQUARES,
    ),
    "5 wrapped index": (FLOW.format("i >= 0", "a[i] * (u[i - 1] - u[i])"), HEAT),
    "5 cast": (FLOW.format("i + 1 < len(u)", "float(int(a[i])) * (u[i + 1] - u[i])"), HEAT),
    "5 cast, forwards": (
        FLOW.format("i + 1 < len(u)", "float(int(a[i])) * (u[i + 1] - u[i])"),
        HEAT.replace("jacrev", "jacfwd"),
    ),
    "6 hard edge, forwards": (
        DISC.format("1.0 if d < 0.0 else 0.0"),
        AREA + "pair = kl.func.jvp(area, (r,), (kl.ones_like(r),))",
    ),
    "6 hard edge in lanes": (
        DISC.format("1.0 if d < 0.0 else 0.0"),
        AREA.replace("r = kl.array([0.5]", "r = kl.array([[0.5], [0.6]]")
        + "slopes = kl.func.grad(lambda r: kl.func.vmap(area)(r).sum())(r)",
    ),
    "6 hard edge": (DISC.format("1.0 if d < 0.0 else 0.0"), AREA + GRADIENT),
    "6 hard edge by where": (DISC.format("where(d < 0.0, 1.0, 0.0)"), AREA + GRADIENT),
    "6 hard edge, minimised": (DISC.format("1.0 if d < 0.0 else 0.0"), AREA + STEPS),
    "6 bytes": (DISC.format("float(int(255.0 / (1.0 + exp(d / 0.1))))"), AREA + "y = kl.func.vjp(area, r)"),
    "8 cast in a loop": (STEP.format("logistic", "y", "round(4.0 * y)"), "kl.func.grad(logistic)(0.3)"),
    "9 cast in every lane": (
        STEP.format("kepler", "z", "float(int(z + 0.6 * sin(z)))"),
        "slopes = kl.func.vmap(kl.func.grad(kepler))(kl.array([0.3, 0.8], dtype=float))",
    ),
    "10 cast in a loop": (EIGHTH.format("float(int(s * s))"), ONCE.format("", "")),
    "10 overwritten leaf": (
        EIGHTH.format("s * s").replace("  # !", ""),
        ONCE.format("x.fill_(0.0)  # !", ""),
    ),
    "10 forgotten zeroing": (
        EIGHTH.format("s * s").replace("  # !", ""),
        ONCE.format("", "  # !") + "sweep()\n",
    ),
    "10 wrapped index": (EIGHTH.format("s * x[k - 1]"), ONCE.format("", "")),
}


DOUBLE = "def double(x: array[float], y: array[float]):\n    y[tid()] = 2.0 * x[tid()]\n"
PASSED_ON = """
x = kl.ones(3, dtype=float, requires_grad=True)
y = kl.zeros(3, dtype=float{})
for k in range(2):
    with kl.Tape() as tape:
        double[3](x, y){}
        loss = {}
    tape.backward(loss)
"""
TRAINED = ", requires_grad=True"
SAID |= {
    "2 loss of the host": (
        DOUBLE,
        PASSED_ON.format(TRAINED, "", "kl.array([np.mean(y.numpy() ** 2)], dtype=float)  # !"),
    ),
    "2 loss of the host, as a leaf": (
        DOUBLE,
        PASSED_ON.format(TRAINED, "", "kl.array([np.mean(y.numpy() ** 2)], requires_grad=True)  # !"),
    ),
    "2 result without gradients": (DOUBLE, PASSED_ON.format("", "  # !", "(y * y).sum()")),
    "2 cast of an array": (
        DOUBLE,
        PASSED_ON.format(TRAINED, "", "(y.astype(int).astype(float) * 2.0).sum()  # !"),
    ),
    "2 logarithm of zero": (
        DOUBLE.replace("2.0 * x[tid()]", "-log(x[tid()] - 1.0)  # !"),
        PASSED_ON.format(TRAINED, "", "y.sum()").replace("(loss)", "(loss, check_finite=True)"),
    ),
    "4 state passed on by NumPy": (
        DOUBLE,
        PASSED_ON.format(TRAINED, "", "kl.array(y.numpy(), dtype=float, requires_grad=True).sum()  # !"),
    ),
    "4 steps counted": (
        "def f(dt: float):\n    n = int(1.0 / dt)  # !\n    s = float(n)\n    return s\n",
        "slope = kl.func.grad(f)(0.1)",
    ),
    "5 wrapped in two dimensions": (
        "def f(u: array2d[float], v: array2d[float]):\n    i, j = tid()\n    v[i, j] = u[i, j - 1]  # !\n",
        "f[3, 3](kl.ones((3, 3), dtype=float), kl.zeros((3, 3), dtype=float))",
    ),
}


@pytest.mark.parametrize("planted", SAID)
def test_a_mistake_is_named_by_what_the_program_says(planted: str) -> None:
    lesson = Lesson(*SAID[planted])
    assert lesson.is_named_in(lesson.told), lesson.told


GAP = "def gap(x: float):\n    return sqrt(x + 1.0) - sqrt(x)  # !\n"

CHECKED = {
    "1 kink": (STOPPING.format("max(speed - 20.0, 0.0) / grip"), "stopping", [20.0, 0.8]),
    "2 kink": ("def huber(r: float):\n    return max(0.5 * r, 2.0 * r)  # !\n", "huber", [0.0]),
    "3 kink": ("def valley(x: float, y: float):\n    return abs(y - x * x)  # !\n", "valley", [1.0, 1.0]),
    "8 digits": (GAP, "gap", [1e6]),
    "9 kink": (STEP.format("kepler", "z", "x + 0.1 * abs(z)"), "kepler", [0.0]),
}


TURNS = """
def turn(q: vec3):
    return cos(q[0]) + sin(q[1]) * float(int(q[2]))  # !
"""
CHECKED |= {
    "3 cast of a component": (TURNS, "turn", [kl.vec3(0.1, 0.2, 3.5)]),
    "3 kink behind a minimum": (
        "def valley(x: float):\n    a = (x - 1.0) ** 2.0\n    return a + max(x - 1.0, 2.0 * x - 2.0)  # !\n",
        "valley",
        [1.0],
    ),
    "6 hard edge behind a minimum": (
        """
def disc(x: float, y: float):
    a = x * x
    b = y * y
    return a + b + (1.0 if x < y else 0.0)  # !
""",
        "disc",
        [0.0, 0.0],
    ),
    "4 cast beside": (STEP.format("swing", "angle", "angle - 0.1 * round(angle)"), "swing", [0.7]),
    "4 weak kink": (STEP.format("swing", "angle", "angle - 0.001 * abs(angle)"), "swing", [0.0]),
}


def test_lost_digits_beside_a_kink_are_no_values_of_the_host() -> None:
    text = "def valley(x: float, y: float):\n    return (1.0e4 + x) * (1.0e4 + x) - 1.0e8 + abs(y - 1.0)\n"
    valley = kl.compile(text)["valley"]
    report = shown(kl.autograd.gradcheck, valley, inputs=[0.5, 1.0])
    assert "the host computes" not in report
    assert "`abs` of 0" in report


def test_a_host_value_beside_lost_digits_is_told() -> None:
    valley = kl.compile("def valley(x: float):\n    return (1.0e4 + x) * (1.0e4 + x) - 1.0e8\n")["valley"]

    def both(x: kl.array) -> kl.array:
        return valley(x) + kl.array(1.0e4 * np.sin(x.numpy()), dtype=float)

    x = kl.array([1.0, 2.0], dtype=float, requires_grad=True)
    with pytest.warns(kl.KernelWarning, match="the values came by the host"):
        report = kl.autograd.gradcheck(both, inputs=[x], raise_exception=False, show_summary=False)
    assert report.worst().verdict == "host"


def test_a_zero_line_in_each_launch_of_a_loop_is_one_row() -> None:
    lesson = Lesson(EIGHTH.format("round(s)"), "")
    x = kl.array([0.5, 1.5], dtype=float, requires_grad=True)
    y = kl.zeros(2, dtype=float, requires_grad=True)
    with kl.Tape() as tape:
        for _ in range(5):
            kl.launch(lesson.eighth, dim=2, inputs=[x], outputs=[y])
        loss = (x * x + y).sum()
    found = str(kl.contributions(tape, x, 0, loss))
    (row,) = [line for line in found.splitlines() if "`round` has derivative 0" in line]
    assert "times" in row


@pytest.mark.parametrize("planted", CHECKED)
def test_a_mistake_is_named_by_gradcheck(planted: str) -> None:
    kernels, name, values = CHECKED[planted]
    lesson = Lesson(kernels)
    report = shown(kl.autograd.gradcheck, lesson.names[name], inputs=values)
    assert lesson.is_named_in(report), report


@pytest.mark.parametrize(
    ("kernels", "name", "values"),
    [
        (GAP, "gap", [1e6]),
        (STOPPING.format("sqrt(1.0e6 * speed + grip) - sqrt(1.0e6 * speed)"), "stopping", [20.0, 0.8]),
        ("def valley(x: float):\n    return (1.0e5 + x) * (1.0e5 + x) - 1.0e10  # !\n", "valley", [-0.5]),
    ],
    ids=["8", "1", "3"],
)
def test_lost_digits_of_a_function_are_named_by_precision(
    kernels: str, name: str, values: list[float]
) -> None:
    lesson = Lesson(kernels)
    report = kl.precision(lesson.names[name], inputs=values)
    assert lesson.is_named_in(report), report
    worst = report.worst()
    assert worst is not None
    assert worst.lost > 3


def test_lost_digits_are_no_values_of_the_host() -> None:
    text = "def valley(x: float, y: float):\n    return (1.0e5 + x) * (1.0e5 + x) - 1.0e10 + y * y\n"
    assert kl.autograd.gradcheck(
        kl.compile(text)["valley"], inputs=[-0.5, 1.0], show_summary=False, raise_exception=False
    )
    text = "def var(a: float, b: float, c: float):\n    m = (a + b + c) / 3.0\n"
    text += "    return (a * a + b * b + c * c) / 3.0 - m * m\n"
    values = [1.0e4, 1.0e4 + 1.0, 1.0e4 + 2.0]
    assert kl.autograd.gradcheck(
        kl.compile(text)["var"], inputs=values, show_summary=False, raise_exception=False
    )


DEAD = {
    "2 relu": ("max(s - 9.0, 0.0)", "the other value is taken here"),
    "4 clamp": ("clamp(s, -0.1, 0.1)", "the other value is taken here"),
    "10 product": ("0.0 * s * x[i]", "the derivative is 0 here"),
}


@pytest.mark.parametrize("planted", DEAD)
def test_a_dead_unit_is_named_by_contributions(planted: str) -> None:
    expression, reason = DEAD[planted]
    lesson = Lesson(EIGHTH.format(expression), ONCE.format("", ""))
    y = lesson.y
    with kl.Tape() as tape:
        kl.launch(lesson.eighth, dim=2, inputs=[lesson.x], outputs=[y])
    found = kl.contributions(tape, lesson.x, 1, grads={y: np.ones(2)})
    assert lesson.is_named_in(found), found
    assert reason in str(found)


ROOT = """
def root(a: float):
    z = 1.0
    while abs(z * z - a) > 1.0e9:  # !
        z = 0.5 * (z + a / z)
    return z
"""
COUNTED = """
def logistic(x: float, steps: int):
    for k in range(steps):
        x = round(4.0 * x)  # !
    return x
"""


@pytest.mark.parametrize(
    ("kernels", "program"),
    [
        (STOPPING.format("speed * speed / clamp(grip, 0.0, 0.5)"), "stopping, 20.0, 0.8, argnums=1"),
        (COUNTED, "logistic, 0.3, 5"),
        (ROOT, "root, 2.0"),
        (
            FLOW.format("i + 1 < len(u)", "clamp(a[i], 0.0, 0.5) * (u[i + 1] - u[i])"),
            "temperatures, a, index=2",
        ),
        (FLOW.format("i + 1 < len(u)", "round(a[i]) * (u[i + 1] + a[0])"), "temperatures, a, index=0"),
    ],
    ids=["1 clamp", "8 rounding", "9 tolerance", "5 clamp", "5 rounding beside"],
)
def test_a_zero_of_a_function_is_named_by_contributions(kernels: str, program: str) -> None:
    lesson = Lesson(kernels, HEAT * ("temperatures" in program))
    found = eval(f"kl.contributions({program})", lesson.names)
    assert lesson.is_named_in(found), found


def test_a_wrong_rule_of_a_python_function_is_named_by_gradcheck() -> None:
    lesson = Lesson(
        NOTHING,
        """
def shifts(k, f):
    return f.numpy() / k.numpy()

def back(k, f, u, u_bar):  # !
    return u_bar.numpy() * u.numpy() / k.numpy(), u_bar.numpy() / k.numpy()

solve = kl.func.custom_vjp(shifts, back, check=False)
k, f = kl.array([1.0, 2.0], requires_grad=True), kl.ones(2)
""",
    )
    report = shown(kl.autograd.gradcheck, lambda k: (lesson.solve(k, lesson.f) ** 2).sum(), inputs=[lesson.k])
    assert lesson.is_named_in(report), report


def test_a_dead_unit_of_a_function_is_seen_in_its_trace() -> None:
    hand = kl.compile("def hand(q: float):\n    c = clamp(q, -0.2, 0.2)\n    return cos(c)\n")["hand"]
    found = str(kl.trace(hand, 0.4))
    (line,) = [line for line in found.splitlines() if "clamp" in line and "q_bar +=" in line]
    assert line.split() == ["2", "c", "=", "clamp(q,", "-0.2,", "0.2)", "q_bar", "+=", "0"]


def test_what_is_zero_in_one_way_only_is_silent() -> None:
    both = Lesson("def f(x: float):\n    return x * round(x)  # !\n", "slope = kl.func.grad(f)(2.4)")
    assert (both.told, both.slope) == ("", 2.0)
    straight = Lesson(
        "def f(x: float):\n    if x > 0.0:\n        return 2.0 * x\n    return 3.0 * x  # !\n",
        "slope, bent = kl.func.grad(f)(2.4), kl.func.hessian(f)(2.4)",
    )
    assert (straight.told, straight.slope, straight.bent) == ("", 2.0, 0.0)


def test_what_is_zero_at_these_values_only_is_silent_forwards() -> None:
    dead = Lesson(
        "def f(x: float):\n    return max(x, 0.0)  # !\n",
        "pair, row = kl.func.jvp(f, (-1.0,), (1.0,)), kl.func.jacfwd(f)(-1.0)",
    )
    assert (dead.told, dead.pair[1], dead.row) == ("", 0.0, 0.0)


def test_a_rule_of_a_users_is_no_dead_end() -> None:
    text = "def near(v: float):\n    return round(v)\n\n@func_grad(near, check=False)\n"
    text += "def adj_near(v: float, adj_ret: float):\n    adjoint[v] += adj_ret\n\n"
    lesson = Lesson(text + "def f(x: float):\n    return near(2.0 * x)\n", "slope = kl.func.grad(f)(0.3)")
    assert (lesson.told, lesson.slope) == ("", 2.0)
    assert "zero by construction" not in shown(kl.autograd.gradcheck, lesson.f, inputs=[0.3])
