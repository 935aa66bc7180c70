"""Programs as people write them for simulation, graphics and robotics, in the words of Warp, and their data.

The language's names have the prefix ``wp.``, which kernelab and Warp both understand.  A program is its last
kernel, with the functions and structs that stand before it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TEXTS = {
    "elastic tetrahedra 1e5": """
@wp.kernel
def tetrahedra(x: wp.array[wp.vec3], of: wp.array2d[int], rest: wp.array[wp.mat33], f: wp.array[wp.vec3]):
    e = wp.tid()
    x0 = x[of[e, 0]]
    a = x[of[e, 1]] - x0
    b = x[of[e, 2]] - x0
    c = x[of[e, 3]] - x0
    F = wp.mat33(a[0], b[0], c[0], a[1], b[1], c[1], a[2], b[2], c[2]) * rest[e]
    inverse = wp.transpose(wp.inverse(F))
    stress = (F - inverse) + inverse * (wp.log(wp.determinant(F)) * 2.0)
    H = stress * wp.transpose(rest[e])
    f1 = wp.vec3(H[0, 0], H[1, 0], H[2, 0])
    f2 = wp.vec3(H[0, 1], H[1, 1], H[2, 1])
    f3 = wp.vec3(H[0, 2], H[1, 2], H[2, 2])
    wp.atomic_add(f, of[e, 1], f1)
    wp.atomic_add(f, of[e, 2], f2)
    wp.atomic_add(f, of[e, 3], f3)
    wp.atomic_sub(f, of[e, 0], f1 + f2 + f3)
""",
    "particles to a grid 1e5": """
@wp.kernel
def to_grid(x: wp.array[wp.vec2], v: wp.array[wp.vec2], n: int, m: wp.array2d[float], p: wp.array2d[wp.vec2]):
    k = wp.tid()
    q = x[k] * float(n)
    i = int(q[0] - 0.5)
    j = int(q[1] - 0.5)
    s = wp.vec2(q[0] - float(i), q[1] - float(j))
    for a in range(3):
        for b in range(3):
            u = wp.max(1.5 - wp.abs(s[0] - float(a)), 0.0)
            w = wp.max(1.5 - wp.abs(s[1] - float(b)), 0.0)
            weight = u * u * w * w
            wp.atomic_add(m, i + a, j + b, weight)
            wp.atomic_add(p, i + a, j + b, v[k] * weight)
""",
    "sphere tracing 128 x 128": """
@wp.func
def distance(p: wp.vec3, r: float):
    a = wp.length(p) - r
    b = wp.length(wp.vec3(p[0] - 0.5, p[1], p[2])) - 0.4
    h = wp.clamp(0.5 + 2.5 * (b - a), 0.0, 1.0)
    return b * (1.0 - h) + a * h - 0.2 * h * (1.0 - h)

@wp.kernel
def trace(r: wp.array[float], n: int, depth: wp.array[float]):
    i = wp.tid()
    u = 2.0 * float(i % n) / float(n) - 1.0
    v = 2.0 * float(i // n) / float(n) - 1.0
    d = wp.normalize(wp.vec3(u, v, 1.5))
    t = float(0.0)
    for s in range(16):
        t = t + 0.9 * distance(wp.vec3(0.0, 0.0, -2.0) + d * t, r[0])
    depth[i] = t
""",
    "rigid bodies, 10 steps, 2e4": """
@wp.kernel
def spin(q: wp.array[wp.quat], w: wp.array[wp.vec3], dt: float, q1: wp.array[wp.quat], w1: wp.array[wp.vec3]):
    i = wp.tid()
    r = q[i]
    v = w[i]
    for s in range(10):
        L = wp.quat_rotate_inv(r, v)
        v = v + wp.quat_rotate(r, wp.cross(L, wp.vec3(L[0], L[1] * 2.0, L[2] * 3.0))) * dt
        r = wp.normalize(r + wp.quat(v[0], v[1], v[2], 0.0) * r * (0.5 * dt))
    q1[i] = r
    w1[i] = v
""",
    "arms of 7 joints 2e4": """
@wp.kernel
def arms(q: wp.array2d[float], hand: wp.array[wp.vec3]):
    i = wp.tid()
    T = wp.transform(wp.vec3(0.0, 0.0, 0.0), wp.quat_identity())
    for j in range(7):
        axis = wp.vec3(0.0, 0.0, 1.0)
        if j % 2 == 1:
            axis = wp.vec3(0.0, 1.0, 0.0)
        T = T * wp.transform(wp.vec3(0.0, 0.0, 0.3), wp.quat_from_axis_angle(axis, q[i, j]))
    hand[i] = wp.transform_get_translation(T)
""",
    "structs of bodies 1e5": """
@wp.struct
class Body:
    x: wp.vec3
    v: wp.vec3
    m: float

@wp.kernel
def fall(b: wp.array[Body], g: wp.vec3, dt: float, energy: wp.array[float]):
    i = wp.tid()
    v = b[i].v + g * dt
    x = b[i].x + v * dt
    energy[i] = 0.5 * (b[i].m + 1.0) * wp.dot(v, v) + x[1] * x[1]
""",
    "random walks, 50 steps, 1e5": """
@wp.kernel
def walks(seed: int, s: wp.array[float], total: wp.array[float]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    x = float(1.0)
    for k in range(50):
        x = x + s[0] * (wp.randf(state) - 0.5) * x
    wp.atomic_add(total, 0, x)
""",
    "lattice Boltzmann 256 x 256": """
@wp.kernel
def boltzmann(f: wp.array3d[float], n: int, tau: wp.array[float], g: wp.array3d[float]):
    i, j = wp.tid()
    rho = float(0.0)
    ux = float(0.0)
    uy = float(0.0)
    for q in range(9):
        v = f[q, (i - q % 3 + 1 + n) % n, (j - q // 3 + 1 + n) % n]
        rho += v
        ux += v * float(q % 3 - 1)
        uy += v * float(q // 3 - 1)
    ux = ux / rho
    uy = uy / rho
    for q in range(9):
        cu = 3.0 * (float(q % 3 - 1) * ux + float(q // 3 - 1) * uy)
        equal = rho * (1.0 + cu + 0.5 * cu * cu - 1.5 * (ux * ux + uy * uy)) / 9.0
        v = f[q, (i - q % 3 + 1 + n) % n, (j - q // 3 + 1 + n) % n]
        g[q, i, j] = v + (equal - v) / tau[0]
""",
    "diffusion on a torus 1000 x 1000": """
@wp.kernel
def torus(x: wp.array2d[float], n: int, y: wp.array2d[float]):
    i, j = wp.tid()
    around = x[(i + 1) % n, j] + x[(i - 1 + n) % n, j] + x[i, (j + 1) % n] + x[i, (j - 1 + n) % n]
    y[i, j] = x[i, j] + 0.1 * (around - 4.0 * x[i, j])
""",
    "advection 400 x 400": """
@wp.kernel
def advect(u: wp.array2d[wp.vec2], c: wp.array2d[float], dt: float, z: wp.array2d[float]):
    i, j = wp.tid()
    n = float(c.shape[0])
    x = wp.clamp(float(i) - dt * u[i, j][0], 0.0, n - 1.001)
    y = wp.clamp(float(j) - dt * u[i, j][1], 0.0, n - 1.001)
    a = int(x)
    b = int(y)
    s = x - float(a)
    low = wp.lerp(c[a, b], c[a + 1, b], s)
    z[i, j] = wp.lerp(low, wp.lerp(c[a, b + 1], c[a + 1, b + 1], s), y - float(b))
""",
    "convolution 5 x 5, 512 x 512": """
@wp.kernel
def convolve(x: wp.array2d[float], w: wp.array2d[float], y: wp.array2d[float]):
    i, j = wp.tid()
    s = float(0.0)
    for a in range(5):
        for b in range(5):
            s += w[a, b] * x[i + a, j + b]
    y[i, j] = wp.max(s, 0.0)
""",
    "gamma of bytes 512 x 512": """
@wp.kernel
def gamma(x: wp.array2d[wp.uint8], g: wp.array[float], y: wp.array2d[float]):
    i, j = wp.tid()
    y[i, j] = wp.pow(float(x[i, j]) / 255.0 + 0.001, g[0])
""",
    "texture, bilinear, 3e5": """
@wp.kernel
def sample(image: wp.array2d[float], at: wp.array[wp.vec2], y: wp.array[float]):
    i = wp.tid()
    p = at[i]
    c = int(wp.floor(p[0]))
    r = int(wp.floor(p[1]))
    s = p[0] - float(c)
    above = wp.lerp(image[r, c], image[r, c + 1], s)
    y[i] = wp.lerp(above, wp.lerp(image[r + 1, c], image[r + 1, c + 1], s), p[1] - float(r))
""",
    "network of 32 units 2e4": """
@wp.kernel
def network(x: wp.array2d[float], w: wp.array2d[float], v: wp.array[float], total: wp.array[float]):
    i = wp.tid()
    s = float(0.0)
    for h in range(32):
        a = float(0.0)
        for k in range(8):
            a += w[h, k] * x[i, k]
        s += v[h] * wp.tanh(a)
    wp.atomic_add(total, 0, s * s)
""",
    "product of matrices 256 x 256": """
@wp.kernel
def product(a: wp.array2d[float], b: wp.array2d[float], c: wp.array2d[float]):
    i, j = wp.tid()
    s = float(0.0)
    for k in range(a.shape[1]):
        s += a[i, k] * b[k, j]
    c[i, j] = s
""",
    "softmax of rows 4096 x 500": """
@wp.kernel
def softmax(x: wp.array2d[float], y: wp.array2d[float]):
    i = wp.tid()
    most = float(-1.0e9)
    for k in range(x.shape[1]):
        most = wp.max(most, x[i, k])
    s = float(0.0)
    for k in range(x.shape[1]):
        s += wp.exp(x[i, k] - most)
    for k in range(x.shape[1]):
        y[i, k] = wp.exp(x[i, k] - most) / s
""",
    "sparse rows, 8 each, 1e5": """
@wp.kernel
def sparse(x: wp.array[float], of: wp.array2d[int], a: wp.array2d[float], y: wp.array[float]):
    i = wp.tid()
    s = float(0.0)
    for k in range(8):
        s += a[i, k] * x[of[i, k]]
    y[i] = s
""",
    "Perlin noise, 4 octaves, 1e5": """
@wp.kernel
def octaves(p: wp.array[wp.vec2], y: wp.array[float]):
    i = wp.tid()
    state = wp.rand_init(42)
    s = float(0.0)
    scale = float(1.0)
    for o in range(4):
        s += wp.noise(state, p[i] * scale) / scale
        scale = scale * 2.0
    y[i] = s
""",
    "singular values of 3 x 3, 2e4": """
@wp.kernel
def singular(A: wp.array[wp.mat33], y: wp.array[float]):
    i = wp.tid()
    U = wp.mat33()
    s = wp.vec3()
    V = wp.mat33()
    wp.svd3(A[i], U, s, V)
    y[i] = wp.log(s[0] + 1.0) * s[1] + wp.abs(s[2])
""",
    "float64: powers, sines 3e5": """
@wp.kernel
def doubles(x: wp.array[wp.float64], y: wp.array[wp.float64]):
    i = wp.tid()
    a = x[i]
    y[i] = wp.sin(a) * wp.exp(-a * a) + wp.pow(wp.abs(a) + wp.float64(1.0), wp.float64(1.5))
""",
    "transpose 1000 x 1000": """
@wp.kernel
def turn(x: wp.array2d[float], y: wp.array2d[float]):
    i, j = wp.tid()
    y[j, i] = x[i, j] * 2.0
""",
    "sum of distances 3e5": """
@wp.kernel
def distances(x: wp.array[wp.vec3], y: wp.array[wp.vec3], total: wp.array[float]):
    i = wp.tid()
    d = x[i] - y[i]
    wp.atomic_add(total, 0, wp.dot(d, d))
""",
}
"""The text of each program, by its title."""

OWN_NUMBERS = frozenset({"Perlin noise, 4 octaves, 1e5"})
"""The programs for which each system has random numbers of its own."""


@dataclass(frozen=True)
class Program:
    """A program on its data: the launch's extents, the arguments in order, how many of them it writes.

    An array is a pair of NumPy's and the name of its elements' type; a name alone is that of a struct, of
    which there are as many as threads.  Arrays of floats require gradients.
    """

    dim: tuple[int, ...]
    arguments: list[Any]
    results: int = 1


class Data:
    """The data of each program, by the name of its kernel, the same in every process.

    There are `n` threads, or fewer, or as many as in a square of `side`; `shrink` divides their number.
    """

    def __init__(self, shrink: int) -> None:
        self.shrink = shrink
        self.n = max(16, 100_000 // shrink)
        self.side = self.picture(1000)
        self.rng = np.random.default_rng(5)

    def picture(self, pixels: int) -> int:
        """The side of a square of pixels or cells."""
        return max(8, round(pixels / self.shrink**0.5))

    def real(self, *shape: int, type: str = "float32") -> tuple[Any, str]:
        inner = {"vec2": (2,), "vec3": (3,), "quat": (4,), "mat33": (3, 3)}.get(type, ())
        values = self.rng.random((*shape, *inner))
        return values.astype("float64" if type == "float64" else "float32"), type

    def zeros(self, *shape: int, type: str = "float32") -> tuple[Any, str]:
        return scaled(self.real(*shape, type=type), 0.0)

    def whole(self, low: int, high: int, *shape: int, type: str = "int32") -> tuple[Any, str]:
        return self.rng.integers(low, high, shape).astype(type), type

    def tetrahedra(self) -> Program:
        points = max(32, self.n // 5)
        of = self.whole(0, points - 3, self.n, 1)[0] + np.arange(4, dtype=np.int32)
        corners = np.tile(np.eye(4, 3, -1), (points // 4, 1))  # any four in a row are a tetrahedron
        x, at_rest = (corners + 0.2 * self.real(len(corners), type="vec3")[0] for _ in range(2))
        edges = np.swapaxes(at_rest[of[:, 1:]] - at_rest[of[:, :1]], 1, 2)
        rest = np.linalg.inv(edges).astype(np.float32), "mat33"
        given = [(x.astype(np.float32), "vec3"), (of, "int32"), rest]
        return Program((self.n,), [*given, self.zeros(points, type="vec3")])

    def to_grid(self) -> Program:
        cells = 128
        place = scaled(self.real(self.n, type="vec2"), 0.8, 0.1)
        grids = [self.zeros(cells, cells), self.zeros(cells, cells, type="vec2")]
        return Program((self.n,), [place, self.real(self.n, type="vec2"), cells, *grids], 2)

    def trace(self) -> Program:
        pixels = self.picture(128)
        return Program(
            (pixels * pixels,), [scaled(self.real(1), 0.0, 0.6), pixels, self.zeros(pixels * pixels)]
        )

    def spin(self) -> Program:
        bodies = self.n // 5
        q = scaled(self.real(bodies, type="quat"), 1.0, 0.5)
        start = [(q[0] / np.linalg.norm(q[0], axis=1, keepdims=True), "quat"), self.real(bodies, type="vec3")]
        return Program(
            (bodies,), [*start, 0.01, self.zeros(bodies, type="quat"), self.zeros(bodies, type="vec3")], 2
        )

    def arms(self) -> Program:
        return Program((self.n // 5,), [self.real(self.n // 5, 7), self.zeros(self.n // 5, type="vec3")])

    def fall(self) -> Program:
        return Program((self.n,), ["Body", (0.0, -9.8, 0.0), 0.01, self.zeros(self.n)])

    def walks(self) -> Program:
        return Program((self.n,), [3, scaled(self.real(1), 0.0, 0.3), self.zeros(1)])

    def boltzmann(self) -> Program:
        cells = self.picture(256)
        given = [scaled(self.real(9, cells, cells), 0.1, 0.1), cells, scaled(self.real(1), 0.0, 0.8)]
        return Program((cells, cells), [*given, self.zeros(9, cells, cells)])

    def torus(self) -> Program:
        return Program(
            (self.side, self.side),
            [self.real(self.side, self.side), self.side, self.zeros(self.side, self.side)],
        )

    def advect(self) -> Program:
        cells = self.picture(400)
        given = [self.real(cells, cells, type="vec2"), self.real(cells, cells), 0.5]
        return Program((cells, cells), [*given, self.zeros(cells, cells)])

    def convolve(self) -> Program:
        pixels = self.picture(512)
        given, inside = [self.real(pixels, pixels), scaled(self.real(5, 5), 1.0, -0.5)], pixels - 4
        return Program((inside, inside), [*given, self.zeros(inside, inside)])

    def gamma(self) -> Program:
        pixels = self.picture(512)
        image = self.whole(0, 256, pixels, pixels, type="uint8")
        return Program((pixels, pixels), [image, scaled(self.real(1), 0.0, 2.2), self.zeros(pixels, pixels)])

    def sample(self) -> Program:
        at = scaled(self.real(3 * self.n, type="vec2"), 510.0)
        return Program((3 * self.n,), [self.real(512, 512), at, self.zeros(3 * self.n)])

    def network(self) -> Program:
        weights = [scaled(self.real(32, 8), 2.0, -1.0), scaled(self.real(32), 2.0, -1.0)]
        return Program((self.n // 5,), [self.real(self.n // 5, 8), *weights, self.zeros(1)])

    def product(self) -> Program:
        rows = self.picture(256)
        return Program((rows, rows), [self.real(rows, rows), self.real(rows, rows), self.zeros(rows, rows)])

    def softmax(self) -> Program:
        rows = max(8, 4096 // self.shrink)
        return Program((rows,), [self.real(rows, 500), self.zeros(rows, 500)])

    def sparse(self) -> Program:
        return Program(
            (self.n,),
            [self.real(self.n), self.whole(0, self.n, self.n, 8), self.real(self.n, 8), self.zeros(self.n)],
        )

    def octaves(self) -> Program:
        return Program((self.n,), [scaled(self.real(self.n, type="vec2"), 10.0), self.zeros(self.n)])

    def singular(self) -> Program:
        return Program((self.n // 5,), [self.real(self.n // 5, type="mat33"), self.zeros(self.n // 5)])

    def doubles(self) -> Program:
        return Program(
            (3 * self.n,), [self.real(3 * self.n, type="float64"), self.zeros(3 * self.n, type="float64")]
        )

    def turn(self) -> Program:
        return Program(
            (self.side, self.side), [self.real(self.side, self.side), self.zeros(self.side, self.side)]
        )

    def distances(self) -> Program:
        return Program(
            (3 * self.n,),
            [self.real(3 * self.n, type="vec3"), self.real(3 * self.n, type="vec3"), self.zeros(1)],
        )


def scaled(given: tuple[Any, str], factor: float, more: float = 0.0) -> tuple[Any, str]:
    """Random numbers times a factor, and something more."""
    return (given[0] * factor + more).astype(given[0].dtype), given[1]


@dataclass(frozen=True)
class Ready:
    """A program in the arrays of a system, with its kernel: `given` and `made` are its arguments."""

    kernel: Any
    dim: tuple[int, ...]
    given: list[Any]
    made: list[Any]
    primal: Callable[[], None]


def ready(system: Any, title: str, shrink: int = 1) -> Ready:
    """A program ready to run on a system, kernelab or Warp."""
    name = TEXTS[title].rpartition("def ")[2].partition("(")[0]
    lib, named, work = system.lib, system.compile_all(TEXTS[title]), getattr(Data(shrink), name)()
    kernel = named[name]

    def argument(value: Any) -> Any:
        match value:
            case str():
                return lib.zeros(work.dim, dtype=named[value], requires_grad=True)
            case (np.ndarray() as values, str() as type):
                is_whole = type in ("int32", "uint8")
                return lib.array(values, dtype=getattr(lib, type), requires_grad=not is_whole)
            case tuple():
                return lib.vec3(*value)
        return value

    arguments = [argument(value) for value in work.arguments]
    given, made = arguments[: -work.results], arguments[-work.results :]
    return Ready(
        kernel, work.dim, given, made, lambda: lib.launch(kernel, dim=work.dim, inputs=given, outputs=made)
    )
