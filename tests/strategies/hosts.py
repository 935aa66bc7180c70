"""Random host programs, as text: launches, copies, fills and operators over overlapping views of arrays.

Some of them stand in functions that close over the arrays and run as checkpoints.

`A` has 8 floats, `B` 3 rows of 4, `I` 6 indices below 3.  Every view has 3 elements, so that any can meet
any; views that overlap are allowed everywhere, for threads run in turn.
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
RAW = ("A[0:3]", "A[2:5]", "A[1:7:2]", "B[0, 0:3]", "B[:, 1]", "A[::3]")
"""Views that may be made again over their address, whose strides are positive."""

PLACES = ("[2, 0, 1]", "[0, 1, 2]", "[1, 1, 2]", "[0, -1, 0]", "I[0:3]", "I[5:2:-1]")
"""Indices that pick elements of a view, some of them twice."""

INDICES = ("I[0:3]", "I[2:5]", "I[3:6]", "I[5:2:-1]", "I[0:6:2]")
KERNELS = {
    "pick": """
def pick(k: array[int], x: array[float64], y: array[float64]):
    i = tid()
    y[i] = sin(x[k[i]]) * y[k[2 - i]]
""",
    "turn": """
def turn(k: array[int], x: array[float64]):
    i = tid()
    x[k[i]] *= cos(x[i])
    k[i] = (k[i] + 1) % 3
""",
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

LONG = ("A", "A[::-1]", "B.flatten()", "B.reshape(12)[::-1]", "B.reshape(12)[2:11]")
WINDOWS = {
    "even": "y[i + o] = sin(x[2 * i]) * x[i + o]",
    "below": "if i + o < 4:\n        x[i + o] = sin(x[i]) * y[3 - i]",
    "chain": "for j in range(o):\n        y[i] = y[i] * x[j + i] + 0.1",
    "ends": "y[-1 - i] = sin(x[-o - 1]) * y[i]",
    "around": "y[(i * 2 + o) % 5] = cos(x[i // 2 + o]) * x[min(i + o, 3)]",
    "but": "if i == o:\n        return\n    x[i] = sin(x[i]) * y[i + 1]",
    "stretch": "for j in range(i, o + 2):\n        x[j] = sin(x[j]) * y[j + 1]",
    "down": "for j in range(o + 1, -1, -1):\n        y[j] = sin(y[j + 1]) * x[j]",
    "inner": "for j in range(o, len(x) - 1):\n        if j > 0:\n            y[j % 7] = x[j - 1] * x[j + 1]",
    "count": "t = 0\n    while t < o:\n        y[t + 1] = sin(x[t]) * y[t + i]\n        t += 1",
    "back": "t = o + i\n    while t >= 0:\n        x[t] = sin(x[t]) * y[t + 1]\n        t -= 2",
    "until": "t = i\n    while True:\n        y[t] = y[t] * x[t + o]\n        t += 2\n"
    "        if t > 4:\n            break",
    "twice": "t = 0\n    while t < 3:\n        u = t\n        while u < o + 1:\n"
    "            x[u + t] = sin(x[u]) * y[t]\n            u += 1\n        t += 1",
    "skip": "t = 0\n    while t < 4:\n        if (t + i) % 3 == 0:\n            t += 1\n"
    "            continue\n        y[t + o] = y[t] * x[o]\n        t += 1",
    "after": "t = 0\n    while t + t < o + 2:\n        t += 1\n    y[t] = sin(x[t + i]) * y[t + 1]",
    "either": "a = i + 1 if (i + o) % 2 == 0 else i\n    b = i + 1 if i * o % 3 < 2 else i\n"
    "    if a < o:\n        y[b] = sin(x[a]) * x[b + 2]",
}
"""What kernels on whole arrays do: `o` is an int below 4."""

KERNELS |= {
    name: f"""
def {name}(x: array[float64], y: array[float64], o: int):
    i = tid()
    {body}
"""
    for name, body in WINDOWS.items()
}


@st.composite
def host_programs(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts of Python: what runs on the tape, and what runs after it."""
    writer = _Host(draw)
    return writer.program(1, 9), writer.program(0, 3)


@st.composite
def careless_programs(draw: st.DrawFn) -> tuple[str, str]:
    """The same with writes through NumPy and launches that are not recorded among them."""
    writer = _Host(draw, careless=True)
    made = f"{writer.creation()}\n"  # of what nothing reads at the end a change may go unseen
    return made + writer.program(1, 6), writer.program(0, 3)


class _Host(Drawing):
    def __init__(self, draw: st.DrawFn, careless: bool = False) -> None:
        super().__init__(draw)
        self.temporaries = 0
        self.functions = 0
        self.careless = careless

    def program(self, least: int, most: int) -> str:
        return "".join(self.block() + "\n" for _ in range(self.number(least, most)))

    def block(self) -> str:
        """A statement, or several in a checkpoint."""
        if self.number(0, 9) < 9:
            return self.statement()
        self.functions += 1
        body = "".join(f"    {self.change()}\n" for _ in range(self.number(1, 4)))
        return f"def f{self.functions}():\n{body}checkpoint(f{self.functions})"

    def view(self) -> str:
        names = [f"t{n}" for n in range(1, self.temporaries + 1)]
        found = str(self.one([*VIEWS, *names, *names]))
        return f"raw({found})" if found in RAW and self.chance() else found

    def place(self) -> str:
        """A view that can be assigned to."""
        return str(self.one([view for view in VIEWS if "flatten" not in view]))

    def call(self) -> str:
        if self.chance():
            return f"{self.one(list(WINDOWS))!r}, {self.one(LONG)}, {self.one(LONG)}, {self.number(0, 3)}"
        name = self.one([name for name in KERNELS if name not in WINDOWS])
        indices = [self.one(INDICES) for _ in range(KERNELS[name].count("array[int]"))]
        views = [self.view() for _ in range(KERNELS[name].count("array[float64]"))]
        return ", ".join([repr(name), *indices, *views])

    def careless_statement(self) -> str:
        place = self.one([*VIEWS, *[f"t{n}" for n in range(1, self.temporaries + 1)] * 6])
        kind = self.number(0, 3)
        if kind < 2:
            return f"unrecorded({self.call()})"
        if kind == 2:  # and at once a reader that is no launch
            read = f"copy({self.view()}, with_rule({place}, {self.view()}))"
            return f"host_sine({place}, {self.view()}); {read}"
        return str(self.one(["poke({}, 1, 0.7)", "poke({}, 0, 0.0)"])).format(self.one([place, *INDICES[:1]]))

    def statement(self) -> str:
        """Anything: what makes an array gives it a name."""
        return self.creation() if self.number(0, 11) == 0 else self.change()

    def change(self) -> str:
        """A statement that changes arrays."""
        kind = self.number(-3 if self.careless else -1, 12)
        if kind <= -2:
            return self.careless_statement()
        if kind >= 9:
            return self.utility()
        if kind == -1:
            changes = ["assign({}, [2, 0, 1])", "fill({}, 1)", f"copy({{}}, {self.one(INDICES)})"]
            return str(self.one(changes)).format(self.one(INDICES))
        if kind <= 4:
            return f"run({self.call()})"
        if kind == 5:
            return f"copy({self.view()}, {self.view()})"
        if kind == 6:
            return str(self.one(["fill({}, 0.3)", "fill({}, 0.0)", "assign({}, [0.2, -0.4, 0.7])"])).format(
                self.view()
            )
        if kind == 7:
            return f"{self.place()} {self.one(['+=', '*=', '-='])} {self.one([self.view(), '0.5'])}"
        return f"{self.place()} = {self.view()}"

    def utility(self) -> str:
        view, other = self.view(), self.view()
        picked = f"pick({view}, {self.one(PLACES)})"
        made = [
            *(f"sort({view})", f"sort_pairs({view}, {other})", f"total({view}, {other})"),
            *(f"scan({view}, {other})", f"inner({view}, {other}, {self.view()})"),
            *(f"{name}({other}, {picked})" for name in ("copy", "take")),
            *(f"{self.place()} = {picked}", f"put({view}, {self.one(PLACES)}, {other})"),
            f"mapped_into({view}, {other}, {self.view()})",
            f"copy({view}, with_rule({other}, {self.view()}))",
        ]
        if self.careless:  # in lanes the numbers of runs differ
            made.append(f"runs({view}, {other})")
        return str(self.one(made))

    def creation(self) -> str:
        made = self.one(
            [
                f"clone({self.view()})",
                f"{self.view()} * {self.view()}",
                f"{self.view()} - 0.5 * {self.view()}",
                "blank()",
                f"mapped({self.view()}, {self.view()})",
                f"with_rule({self.view()}, {self.view()})",
                f"clone(pick({self.view()}, {self.one(PLACES)}))",
            ]
        )
        self.temporaries += 1
        return f"t{self.temporaries} = {made}"
