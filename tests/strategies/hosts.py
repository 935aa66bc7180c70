"""Random host programs, as text: launches, copies, fills and operators over overlapping views of two arrays.

`A` has 8 elements, `B` 3 rows of 4.  Every view has 3 elements, so that any can meet any; views that overlap
are allowed everywhere, for threads run in turn.
"""

from hypothesis import strategies as st

from tests.strategies.scope import Drawing

VIEWS = (
    *("A[0:3]", "A[2:5]", "A[1:7:2]", "A[5:2:-1]", "A[5:8]", "A.reshape(2, 4)[1, 0:3]", "A[::3]"),
    *(
        "B[0, 0:3]",
        "B[0, 1:4]",
        "B[:, 1]",
        "B[:, 2]",
        "B.transpose()[3]",
        "B[2, ::-1][0:3]",
        "B.flatten()[3:6]",
    ),
    *("B[1:3][0][1:]", "B[::-1, 0]"),
)
KERNELS = {
    "square": """
def square(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * x[i]
""",
    "product": """
def product(x: array[float64], z: array[float64], y: array[float64]):
    i = tid()
    y[i] = x[i] * z[i] + 0.1 * y[i]
""",
    "add": """
def add(x: array[float64], y: array[float64]):
    i = tid()
    y[i] += 0.5 * x[i]
""",
    "bend": """
def bend(x: array[float64]):
    i = tid()
    for k in range(2):
        x[i] = sin(x[i]) * 0.9
""",
    "mix": """
def mix(x: array[float64], y: array[float64]):
    i = tid()
    t = x[i]
    x[i] = y[i] * t
    y[i] = 0.5 * (t + y[i])
""",
    "scan": """
def scan(x: array[float64], y: array[float64]):
    i = tid()
    y[i] = y[i] + x[i] * y[i - 1 if i > 0 else 2]
""",
    "gather": """
def gather(x: array[float64], y: array[float64]):
    i = tid()
    s = float64(1.0)
    for k in range(len(x)):
        s = s * x[k] + 0.2
    y[i] = s + x[2 - i]
""",
    "total": """
def total(x: array[float64], y: array[float64]):
    i = tid()
    old = atomic_add(y, 0, x[i] * x[i])
    y[2] = y[2] * 0.5 + sin(old)
""",
}
"""The kernels that host programs launch, each on as many views as it has parameters."""


@st.composite
def host_programs(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts of Python: what runs on the tape, and what runs after it."""
    writer = _Host(draw)
    return writer.program(1, 9), writer.program(0, 3)


class _Host(Drawing):
    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(draw)
        self.temporaries = 0

    def program(self, least: int, most: int) -> str:
        return "".join(self.statement() + "\n" for _ in range(self.number(least, most)))

    def view(self) -> str:
        names = [f"t{n}" for n in range(1, self.temporaries + 1)]
        return str(self.one([*VIEWS, *names, *names]))

    def place(self) -> str:
        """A view that can be assigned to."""
        return str(self.one([view for view in VIEWS if "flatten" not in view]))

    def statement(self) -> str:
        kind = self.number(0, 9)
        if kind <= 4:
            name = self.one(list(KERNELS))
            views = [self.view() for _ in range(KERNELS[name].count("array[float64]"))]
            return f"run({name!r}, {', '.join(views)})"
        if kind == 5:
            return f"copy({self.view()}, {self.view()})"
        if kind == 6:
            return str(self.one(["fill({}, 0.3)", "fill({}, 0.0)", "assign({}, [0.2, -0.4, 0.7])"])).format(
                self.view()
            )
        if kind == 7:
            return f"{self.place()} {self.one(['+=', '*=', '-='])} {self.one([self.view(), '0.5'])}"
        if kind == 8:
            return f"{self.place()} = {self.view()}"
        made = self.one(
            [
                f"clone({self.view()})",
                f"{self.view()} * {self.view()}",
                f"{self.view()} - 0.5 * {self.view()}",
            ]
        )
        self.temporaries += 1
        return f"t{self.temporaries} = {made}"
