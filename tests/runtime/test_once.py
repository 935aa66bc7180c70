"""What is made once for a key is one object for all threads."""

import threading

from kernelab.runtime.ops.operands import made_once


def test_threads_that_ask_at_the_same_time_get_the_same_object() -> None:
    others, found = list[threading.Thread](), list[object]()

    @made_once(8)
    def make(key: str) -> object:
        if not others:  # another thread asks while this one makes it
            others.append(threading.Thread(target=lambda: found.append(make(key))))
            others[0].start()
            others[0].join(timeout=0.3)
        return object()

    own = make("a")
    others[0].join()
    assert found == [own]
    assert make("a") is own and make("b") is not own
