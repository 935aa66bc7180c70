"""Threads parse and lower texts one at a time: Python loses count of trees that are built at once."""

import ast
import gc
import threading
from typing import Any

import kernelab as kl
from kernelab.errors import Source
from kernelab.frontend.meaning.source import parse


def test_a_thread_that_parses_does_not_disturb_another() -> None:
    text = "".join(f"s = s + {k}.0 * (x[i] + {k}.0)\n" for k in range(300))
    wanted, parsed, over = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def other() -> None:
        while wanted.acquire() and not over.is_set():
            parse(Source("x = 1 + 2", "other"))
            parsed.release()

    main = threading.current_thread()

    def in_the_middle(phase: str, _: dict[str, Any]) -> None:
        # The collector runs while the tree is being built: let the other thread parse, if it can.
        if phase == "start" and threading.current_thread() is main:
            wanted.release()
            parsed.acquire(timeout=0.02)

    thread = threading.Thread(target=other)
    thread.start()
    before = gc.get_threshold()
    gc.set_threshold(500)
    gc.callbacks.append(in_the_middle)
    try:
        tree = parse(Source(text, "main"))
    finally:
        gc.callbacks.remove(in_the_middle)
        gc.set_threshold(*before)
        over.set()
        wanted.release()
        thread.join()
    assert len(tree.body) == 300 and isinstance(tree.body[0], ast.Assign)


def test_a_function_that_two_threads_call_at_the_same_time_is_not_recursive() -> None:
    threads, raised = list[threading.Thread](), list[BaseException]()

    def gate() -> float:
        # Runs while the function is being lowered: another thread needs it, too.
        if not threads:
            threads.append(threading.Thread(target=use))
            threads[0].start()
            threads[0].join(timeout=0.3)
        return 2.0

    def use() -> None:
        try:
            kl.compile("def k(x: array[float]):\n    x[tid()] = twice(x[tid()])", names)
        except BaseException as error:  # noqa: BLE001  raised again below
            raised.append(error)

    names: dict[str, Any] = {"gate": gate}
    names |= kl.compile("def twice(x):\n    return x * static(gate())", names)
    use()
    for thread in threads:
        thread.join()
    assert len(threads) == 1
    if raised:
        raise raised[0]
