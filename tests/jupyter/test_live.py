"""The widget of a tape, with a comm that goes nowhere: what is sent, when, and what is answered."""

import gc
import importlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comm
import ipywidgets
import nbclient
import nbformat
import pytest
from comm.base_comm import BaseComm

import kernelab as kl
import kernelab.jupyter
from kernelab.jupyter import live
from kernelab.jupyter.live import Pump
from tests.support.waiting import wait_for

SQUARE = kl.compile("def square(x: array[float], y: array[float]):\n    i = tid()\n    y[i] = x[i] * x[i]\n")[
    "square"
]


class Sent(BaseComm):
    """Keeps what is published."""

    messages: list[dict[str, Any]]

    def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **__: Any) -> None:
        if not hasattr(self, "messages"):
            self.messages = []
        self.messages.append({"type": msg_type, **(data or {})})


@pytest.fixture
def comms(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(*given: Any, **named: Any) -> Sent:
        return Sent(*given, **named)

    monkeypatch.setattr(comm, "create_comm", create)


@pytest.fixture
def tape() -> kl.Tape:
    return kl.Tape()


@pytest.fixture
def widget(comms: None, tape: kl.Tape) -> Iterator[live.TapeWidget]:
    made = live.TapeWidget(tape)
    made.comm.messages.clear()
    yield made
    made.close()


def record(tape: kl.Tape, launches: int) -> None:
    x, y = kl.ones(3, dtype=float, requires_grad=True), kl.zeros(3, dtype=float, requires_grad=True)
    with tape:
        for _ in range(launches):
            SQUARE[3](x, y)


def news(widget: live.TapeWidget) -> list[Any]:
    custom = [m["content"] for m in widget.comm.messages if m.get("method") == "custom"]
    return [content["news"] for content in custom if content["op"] == "news"]


def test_what_is_new_is_sent_once(widget: live.TapeWidget, tape: kl.Tape) -> None:
    record(tape, 3)
    assert widget.refresh()
    assert not widget.refresh()
    assert [one["records"] for one in news(widget)] == [[0, 0, 0]]


def test_a_launch_costs_a_few_bytes(widget: live.TapeWidget, tape: kl.Tape) -> None:
    x, y = kl.ones(3, dtype=float), kl.zeros(3, dtype=float)
    with tape:
        for _ in range(2):
            for _ in range(1000):
                SQUARE[3](x, y)
            widget.refresh()
    again = news(widget)[-1]
    assert len(json.dumps(again, separators=(",", ":"))) < 12 * 1000


def test_settling_puts_the_whole_into_the_state_that_notebooks_save(
    widget: live.TapeWidget, tape: kl.Tape
) -> None:
    record(tape, 3)
    widget.refresh()
    widget.settle()
    assert json.loads(widget.snapshot)["records"] == [0, 0, 0]
    assert [m["state"].keys() for m in widget.comm.messages if m.get("method") == "update"] == [{"snapshot"}]


def test_a_page_that_asks_whether_anybody_is_there_is_answered(widget: live.TapeWidget) -> None:
    widget._asked(widget, {"op": "hello"}, [])
    assert widget.comm.messages[-1]["content"] == {"op": "here"}


def test_a_question_gets_an_answer_with_its_number(widget: live.TapeWidget, tape: kl.Tape) -> None:
    record(tape, 1)
    widget.refresh()
    widget._asked(widget, {"op": "ask", "id": "7", "ask": "array", "number": 0}, [])
    answer = widget.comm.messages[-1]["content"]
    assert (answer["op"], answer["id"]) == ("answer", "7")
    assert "array" in answer["html"]


def test_recording_and_looking_from_two_threads_loses_nothing(widget: live.TapeWidget, tape: kl.Tape) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            widget.refresh()

    looking = threading.Thread(target=look)
    looking.start()
    record(tape, 500)
    stop.set()
    looking.join()
    widget.refresh()
    assert sum(len(one.get("records", ())) for one in news(widget)) == 500


def test_a_tape_that_is_gone_is_looked_after_no_more(comms: None) -> None:
    made = live.TapeWidget(kl.Tape())
    assert made.refresh() is None
    made.close()


class Shown:
    """Changes a few times, then stays as it is."""

    def __init__(self, changes: int) -> None:
        self.left = changes
        self.settled: list[float] = []
        self.looks: list[float] = []
        self.gone = False

    def refresh(self) -> bool | None:
        self.looks.append(time.monotonic())
        if self.gone:
            return None
        self.left -= 1
        return self.left >= 0

    def settle(self) -> None:
        self.settled.append(time.monotonic())


def test_everything_is_told_again_once_nothing_changes_and_the_thread_ends_with_the_last() -> None:
    pump, shown = Pump(), Shown(5)
    pump.add(shown)
    wait_for(lambda: shown.settled)
    looks = len(shown.looks)
    wait_for(lambda: len(shown.looks) > looks + 2)
    assert len(shown.settled) == 1
    shown.gone = True
    wait_for(lambda: pump._thread is None)


def test_a_flush_tells_everything_at_once() -> None:
    pump, shown = Pump(), Shown(1)
    pump._quiet[shown] = 1.0
    pump.flush()
    assert len(shown.settled) == 1
    pump.flush()
    assert len(shown.settled) == 1


class Failing(Shown):
    """Cannot be looked at, or cannot be told."""

    def __init__(self, when: str) -> None:
        super().__init__(1)
        self.when = when

    def refresh(self) -> bool | None:
        if self.when == "refresh":
            raise RuntimeError("the object of a user")
        return super().refresh()

    def settle(self) -> None:
        raise RuntimeError("the object of a user")


@pytest.mark.parametrize("when", ["refresh", "settle"])
@pytest.mark.filterwarnings("ignore:a live view stopped")
def test_a_view_that_fails_ends_no_other(when: str) -> None:
    pump, failing, shown = Pump(), Failing(when), Shown(1)
    pump.add(failing)
    wait_for(lambda: failing not in pump._quiet)
    pump.add(shown)
    wait_for(lambda: shown.settled)
    shown.gone = True
    wait_for(lambda: pump._thread is None)


@pytest.mark.parametrize("when", ["refresh", "settle"])
def test_a_view_that_fails_is_named_where_a_cell_ends(when: str) -> None:
    pump, failing, shown = Pump(), Failing(when), Shown(1)
    pump._quiet |= {failing: 0.0, shown: 0.0}
    with pytest.warns(kl.KernelWarning, match="a live view stopped: RuntimeError: the object of a user"):
        pump.flush()
    assert len(shown.settled) == 1
    assert list(pump._quiet) == [shown]


def test_a_tape_is_shown_again_after_all_widgets_were_closed(comms: None, tape: kl.Tape) -> None:
    first = live.widget_of(tape)
    assert live.widget_of(tape) is first
    first.close()
    second = live.widget_of(tape)
    assert second is not first
    assert second.comm is not None
    second.close()


def test_the_widget_of_a_live_view_sends_what_is_new_and_goes_with_the_view(comms: None) -> None:
    x = kl.zeros((20, 20), dtype=float)
    view = kl.live(x)
    widget = live.widget_of(view)
    widget.comm.messages.clear()
    assert not widget.refresh()
    x.fill_(3.0)
    view.update()
    assert widget.refresh()
    (sent,) = [m["content"] for m in widget.comm.messages if m.get("method") == "custom"]
    assert (sent["op"], "3 to 3" in sent["html"], sent["version"]) == ("news", True, 1)
    assert "3 to 3" not in widget.snapshot
    widget.settle()
    assert ("3 to 3" in widget.snapshot, widget.version) == (True, 1)
    widget._moved(widget, {"op": "settle"}, [])  # of a page whose state is older than news that came
    again = widget.comm.messages[-1]
    assert (again["method"], again["state"]) == ("update", {"version": 1, "snapshot": widget.snapshot})
    del view
    gc.collect()
    assert widget.refresh() is None
    widget.close()


def test_a_slider_is_answered_by_the_view_and_the_function_stays_as_long_as_its_sliders(comms: None) -> None:
    widget = live.widget_of(kl.explore(a=(0.0, 2.0))(lambda a: a * a))
    gc.collect()
    widget._moved(widget, {"op": "slide", "values": {"a": 1.5}}, [])
    sent = [m["content"] for m in widget.comm.messages if m.get("method") == "custom"]
    assert ">2.25<" in sent[-1]["html"]
    assert ">2.25<" in widget.snapshot
    assert widget.sliders[0]["value"] == 1.5
    widget._moved(widget, {"op": "slide", "values": "nonsense"}, [])
    widget._moved(widget, {"op": "hello"}, [])
    assert widget.comm.messages[-1]["content"] == {"op": "here"}
    widget.close()


def test_a_notebook_run_without_a_page_keeps_the_last_picture_and_curve(front_end: Path) -> None:
    cells = (
        "import kernelab as kl\nx = kl.zeros((20, 20), dtype=float)\nview = kl.live(x)\nview",
        """loss = kl.live.curve('loss')
for k in kl.progress(range(3)):
    x.fill_(k)
    view.update()
    loss.update(k)""",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (picture,) = notebook.cells[0].outputs  # shown once, though it is the value of its cell, too
    assert "2 to 2, mean 2" in picture["data"]["text/html"]
    curve, bar = notebook.cells[1].outputs
    assert "loss 2 after 3 steps" in curve["data"]["text/html"]
    assert "steps: 3 in" in bar["data"]["text/plain"]


def test_without_a_front_end_the_static_forms_say_why(monkeypatch: pytest.MonkeyPatch, tape: kl.Tape) -> None:
    monkeypatch.setattr(live, "is_built", lambda: False)
    shown = live.live_bundle(tape, {"text/plain": "tape", "text/html": "<p>tape</p>"})
    assert shown["text/html"].startswith("<p>tape</p>")
    assert "node" in shown["text/html"]
    assert "application/vnd.jupyter.widget-view+json" not in shown
    assert tape.times == {}


def two_tapes() -> Any:
    """A notebook that has shown two tapes."""
    show = "tape = kl.Tape()\nwith tape:\n    kl.copy(kl.zeros(2), kl.ones(2))\ntape"
    cells = [nbformat.v4.new_code_cell(cell) for cell in ("import kernelab as kl", show, show)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return notebook


def test_the_script_of_tapes_is_stored_once_a_notebook(front_end: Path) -> None:
    notebook = two_tapes()
    states = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    tapes = [one["state"] for one in states.values() if "snapshot" in one["state"]]
    assert len(tapes) == 2
    assert all(len(json.dumps(tape)) < 6000 for tape in tapes)
    (script,) = {tape["script"].removeprefix("IPY_MODEL_") for tape in tapes}
    assert states[script]["state"]["text"] == (front_end / "tape.js").read_text(encoding="utf-8")
    assert json.dumps(notebook).count("klt-heading") < 5


def test_where_live_tapes_are_off_a_notebook_has_pictures_and_tables_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERNELAB_LIVE_TAPES", "0")
    notebook = two_tapes()
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells[1:]:
        (shown,) = cell.outputs
        assert shown["data"].keys() == {"text/plain", "text/html", "image/svg+xml"}


def test_the_setting_turns_live_tapes_off(monkeypatch: pytest.MonkeyPatch, tape: kl.Tape) -> None:
    forms = {"text/plain": "tape", "text/html": "<p>tape</p>"}
    monkeypatch.setattr(kl.config, "live_tapes", False)
    assert live.live_bundle(tape, forms) == forms


def test_where_no_thread_starts_tapes_are_static(monkeypatch: pytest.MonkeyPatch, tape: kl.Tape) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    live._threads_start.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    forms = {"text/plain": "tape", "text/html": "<p>tape</p>"}
    assert live.live_bundle(tape, forms) == forms
    live._threads_start.cache_clear()


@pytest.fixture
def without_anywidget(comms: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `live` is where anywidget is not installed."""
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "kernelab.jupyter.live")
    monkeypatch.setattr(kernelab.jupyter, "live", live)
    return importlib.import_module("kernelab.jupyter.live")


def test_the_state_of_a_tape_is_the_same_without_anywidget(
    widget: live.TapeWidget, without_anywidget: Any
) -> None:
    other = without_anywidget.TapeWidget(kl.Tape())
    ours, theirs = other.get_state(), widget.get_state()
    assert ours.keys() == theirs.keys()
    differ = {key for key in ours if ours[key] != theirs[key]}
    assert differ <= {"layout", "script", "_model_module_version", "_view_module_version"}
    other.close()


@pytest.mark.parametrize("is_installed", [False, True])
def test_without_anywidget_tapes_live_where_the_extension_is_installed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    front_end: Path,
    without_anywidget: Any,
    is_installed: bool,
) -> None:
    place = tmp_path / "package.json"
    if is_installed:
        place.touch()
    monkeypatch.setattr(without_anywidget, "EXTENSION", place)
    shown = without_anywidget.live_bundle(kl.Tape(), {"text/plain": "tape"})
    assert ("application/vnd.jupyter.widget-view+json" in shown) == is_installed


def test_without_ipywidgets_tapes_are_static(monkeypatch: pytest.MonkeyPatch, tape: kl.Tape) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.delitem(sys.modules, "kernelab.jupyter.live")
    shell = SimpleNamespace(kernel=1, user_ns={})  # a view of an earlier test may still look for names there
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert kl._live(tape, {"text/plain": "tape"}) == {"text/plain": "tape"}


def test_a_notebook_run_without_a_page_keeps_all_of_a_tape(front_end: Path) -> None:
    cells = (
        "import kernelab as kl",
        "%%kernel --quiet\ndef square(x: array[float], y: array[float]):\n    y[tid()] = x[tid()] * x[tid()]",
        "x, y = kl.ones(4, dtype=float), kl.zeros(4, dtype=float)\ntape = kl.Tape()\nkl.show(tape)",
        "with tape:\n    for _ in range(3):\n        square[4](x, y)",
        "tape",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    states = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    (snapshot,) = [one["state"]["snapshot"] for one in states if "snapshot" in one["state"]]
    assert json.loads(snapshot)["records"] == [0, 0, 0]
    before, after = (notebook.cells[i].outputs[0]["data"] for i in (2, 4))
    assert before.keys() == {"application/vnd.jupyter.widget-view+json", "text/plain", "text/html"}
    assert "show the tape once more after it has recorded" in before["text/plain"].replace("\n", " ")
    assert "tape of 3 records" in after["text/html"]


def test_a_view_lets_go_of_what_it_took_in_once_its_tape_is_gone(comms: None) -> None:
    def shown() -> live.TapeWidget:
        tape = kl.Tape()
        widget = live.TapeWidget(tape)
        record(tape, 50)
        widget.refresh()
        return widget

    widget = shown()
    gc.collect()
    assert widget.refresh() is None
    assert not any(widget._digest.whole()[part] for part in ("records", "times", "sweep"))
    # A page that opens later asks for all of it.
    widget.comm.messages.clear()
    widget._asked(widget, {"op": "settle"}, [])
    states = [m["state"] for m in widget.comm.messages if m.get("method") == "update"]
    assert len(json.loads(states[-1]["snapshot"])["records"]) == 50
    assert len(json.loads(widget.snapshot)["records"]) == 50
    widget.close()


def test_a_closed_view_leaves_no_widget_behind(comms: None) -> None:
    live.TapeWidget(kl.Tape()).close()  # the script that all views share stays
    before = set(ipywidgets.widgets.widget._instances)
    live.TapeWidget(kl.Tape()).close()
    assert set(ipywidgets.widgets.widget._instances) <= before  # those of earlier tests may go meanwhile
