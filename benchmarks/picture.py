"""Draws cost against size, on logarithmic axes, as an SVG file; needs Matplotlib.

python picture.py FILE < {"title": {"series": [[size, cost], ...]}}
"""

import json
import sys

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot


def main() -> None:
    panels = json.load(sys.stdin)
    mpl.rcParams["svg.hashsalt"] = "kernelab"
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 4), layout="constrained")
    for axis, (title, series) in zip(axes, panels.items(), strict=True):
        for name, points in series.items():
            axis.loglog(*zip(*points, strict=True), marker="o", label=name)
        axis.set_title(title)
        axis.grid(visible=True, which="major", alpha=0.4)
        axis.legend()
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
