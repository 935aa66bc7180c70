"""Searches, counts and flows of several scales.

What takes arrays, or loops as often as an argument says, is a function in the language itself: this is the
text, which the frontend lowers when one is first called, so both derivatives follow from it.
"""

TEXT = '''
def lower_bound(arr, value):
    """The index of the first element of a sorted array that is not less than a value; else the last index."""
    return lower_bound_within(arr, 0, len(arr), value)


def lower_bound_within(arr, arr_begin: int, arr_end: int, value):
    """The same among the elements from `arr_begin` up to `arr_end`."""
    low = arr_begin
    high = arr_end - 1
    while low < high:
        middle = low + (high - low) // 2
        if arr[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def sample_cdf(state: uint32, cdf):
    """An index drawn from the distribution whose sums up to each index an array holds, the last being 1."""
    return lower_bound_within(cdf, 0, len(cdf), randf(state))


def log_factorial(k: float):
    """Stirling's series for the logarithm of k!, three places further on, where it is exact in float32."""
    x = k + 4.0
    series = (x - 0.5) * log(x) - x + 0.9189385332046727 + (1.0 / 12.0 - 1.0 / (360.0 * x * x)) / x
    return series - log((k + 1.0) * (k + 2.0) * (k + 3.0))


def poisson_below_ten(state: uint32, lam: float):
    """By counting how many numbers from 0 to 1 multiply to less than exp(-lam) (Knuth)."""
    count = uint32(0)
    product = randf(state)
    while product > exp(-lam):
        product *= randf(state)
        count += uint32(1)
    return count


def poisson_from_ten(state: uint32, lam: float):
    """By transformed rejection (Hoermann, The transformed rejection method for Poisson variables, 1993)."""
    b = 0.931 + 2.53 * sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2.0)
    k = 0.0
    searching = True
    while searching:
        u = randf(state) - 0.5
        v = 1.0 - randf(state)
        us = 0.5 - abs(u)
        k = floor((2.0 * a / us + b) * u + lam + 0.43)
        if us >= 0.07 and v <= limit:
            searching = False
        elif k >= 0.0 and (us >= 0.013 or v <= us):
            density = k * log(lam) - lam - log_factorial(k)
            searching = log(v * inverse_alpha / (a / (us * us) + b)) > density
    return uint32(k)


def poisson(state: uint32, lam: float):
    """A number of the Poisson distribution of mean `lam`; it takes one draw of the state, whatever it is."""
    own = rand_next(rand_next(state) ^ uint32(2654435769))
    count = uint32(0)
    if lam >= 10.0:
        count = poisson_from_ten(own, lam)
    elif lam > 0.0:
        count = poisson_below_ten(own, lam)
    return count


def curlnoise_octaves(state: uint32, coordinate, octaves, lacunarity=2.0, gain=0.5):
    """Flows of several scales: each `lacunarity` times as fine and `gain` times as strong as the last."""
    total = curlnoise(state, coordinate) * where(octaves > 0, 1.0, 0.0)
    frequency = 1.0
    weight = 1.0
    for k in range(1, int(octaves)):
        frequency *= lacunarity
        weight *= gain
        total += curlnoise(state, coordinate * frequency) * weight
    return total
'''

WORDS = ("lower_bound", "sample_cdf", "poisson")
"""The words that mean a function of this text in every call."""

BY_COUNT = {
    ("lower_bound", 4): "lower_bound_within",
    **{("curlnoise", n): "curlnoise_octaves" for n in (3, 4, 5)},
}
"""The functions that calls of a word with so many arguments mean."""

DRAWS = {"sample_cdf": 1, "poisson": 1}
"""How many numbers they draw from their state."""
