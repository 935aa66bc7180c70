"""The digits that a kernel loses as a heat over its source lines, forwards and backwards, and as text."""

from html import escape

from kernelab.autodiff.checks.lost_digits import Loss
from kernelab.autodiff.inspect.precision import LineDigits, Precision
from kernelab.errors import Source
from kernelab.views.pages import markup
from kernelab.views.pages.markup import Below, Drawing, Node, Run, words

STEP, WIDE, TEXT = 22, 86, 190
"""The height of a line, the width of a column of heat, and where the text begins, in pixels."""


def precision_view(report: Precision) -> Node:
    """The heat, and the line that loses the most."""
    nodes: list[Node] = [words(Run("digits lost", "strong"), f" by {report.name}, against float64", level=1)]
    for source in dict.fromkeys(line.span.source for line in report.lines):
        lines = [line for line in report.lines if line.span.source is source]
        nodes.append(Drawing("", _svg(source, lines, report.digits), tuple(_text(source, lines))))
    worst = report.worst()
    if worst is None:
        nodes.append(words(Run("no line loses a digit", "good")))
    else:
        place = f"{worst.span.source.label}, line {worst.span.line}"
        nodes.append(words(Run(f"{place}: ", "strong"), worst.told))
    if not report.is_complete:
        nodes.append(words(Run("not all was looked at: large launches and C++ are left out", "dim")))
    return Below(tuple(nodes))


def precision_text(report: Precision) -> str:
    """The same as text."""
    return markup.render(precision_view(report))


def _shown(source: Source, lines: list[LineDigits]) -> list[tuple[int, LineDigits | None]]:
    """The lines from the first to the last that computes floats."""
    by_line = {line.span.line: line for line in lines}
    return [(number, by_line.get(number)) for number in range(min(by_line), max(by_line) + 1)]


def _digits(loss: Loss | None) -> str:
    if loss is None:
        return ""
    return f"{max(loss.lost, 0.0):.1f}, {loss.left:.1f} left"


def _text(source: Source, lines: list[LineDigits]) -> list[str]:
    rows = [
        f"{number:>4}  {_digits(forward):>14}  {_digits(backward):>14}  {source.line(number).rstrip()}"
        for number, line in _shown(source, lines)
        for forward, backward in [(line.forward, line.backward) if line else (None, None)]
    ]
    return [source.label, f"line  {'forward':>14}  {'backward':>14}  source", *rows]


def _svg(source: Source, lines: list[LineDigits], most: float) -> str:
    shown = _shown(source, lines)
    longest = max(len(source.line(number)) for number, _ in shown)
    width, height = TEXT + 30 + 8 * longest, STEP * (len(shown) + 1) + 6
    parts = [_words(8, 0, "line"), _words(50, 0, "forward"), _words(50 + WIDE, 0, "backward")]
    for k, (number, line) in enumerate(shown, 1):
        parts.append(_words(8, k, str(number)))
        for column, loss in enumerate((line.forward, line.backward) if line else ()):
            if loss is not None:
                parts.append(_heat(50 + WIDE * column, k, loss, most))
        parts.append(_words(TEXT + 40, k, source.line(number).rstrip()))
    style = "font:13px ui-monospace,monospace;color:inherit;max-width:100%"
    head = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="{style}" role="img"'
    label = f'aria-label="digits lost at each line of {escape(source.label)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {head} {label}>{"".join(parts)}</svg>'


def _words(x: int, k: int, text: str) -> str:
    y = STEP * k + 15
    return f'<text x="{x}" y="{y}" fill="currentColor" xml:space="preserve">{escape(text)}</text>'


def _heat(x: int, k: int, loss: Loss, most: float) -> str:
    """A cell that is the redder the more digits are lost, with the loss and what it does as a tooltip."""
    share = min(max(loss.lost, 0.0) / most, 1.0) if most else 0.0
    box = f'x="{x}" y="{STEP * k}" width="{WIDE - 6}" height="{STEP - 3}" rx="3"'
    fill = f'fill="#d62728" fill-opacity="{0.06 + 0.84 * share:.2f}"'
    number = _words(x + 6, k, f"{max(loss.lost, 0.0):.1f}")
    return f"<g><title>{escape(loss.told)}</title><rect {box} {fill}/>{number}</g>"
