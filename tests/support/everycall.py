"""Asks `nvidia.Driver` for everything once, in a process of its own; see `tests.backend.test_libcuda`."""

import ctypes
import sys
import threading

from kernelab.backend.cuda.nvidia import open_driver, version


def main() -> None:
    driver = open_driver(0)
    assert version() == (13, 0) and driver.architecture == "sm_90" and driver.processors == 132
    host = ctypes.create_string_buffer(b"\x05" * 64, 64)
    start = ctypes.addressof(host)
    address = driver.allocate(64)
    driver.upload(address, start, 64)
    driver.copy(address, address + 4, 4)
    driver.download(start, address, 16)
    assert host.raw[:16] == b"\x07" * 16
    for pattern in (b"\x81", b"\x34\x92", b"\x00\x00\x80\xbf"):
        driver.fill(address, pattern, 3)
    assert driver.memory()[1] == 9000 and driver.owns(address) and not driver.owns(1)
    shared, mapped = driver.shared(100)
    assert ctypes.string_at(shared, 100) == bytes(100) and mapped == shared
    function = driver.load(b"\x7fELF and so on", "f_entry")
    stream = driver.open_stream()
    slots = b"".join(number.to_bytes(8, "little") for number in (2**40 + 1, 2, 3))
    driver.launch(function, 7, 1024, slots, mapped, stream)
    thread = threading.Thread(target=driver.launch, args=(function, 1, 32, slots, mapped))
    thread.start()
    thread.join()
    events = [driver.open_event(timed) for timed in (True, True, False)]
    for event in events:
        driver.record(event, stream)
        driver.hold(0, event)
        driver.wait_for(event)
    assert driver.elapsed(*events[:2]) == 2.5
    driver.begin_capture()
    driver.free(driver.allocate(8))
    graph = driver.end_capture()
    driver.replay(graph)
    driver.replay(graph, stream)
    del graph
    driver.wait(stream)
    driver.wait_for_all()
    for event in events:
        driver.close_event(event)
    driver.close_stream(stream)
    driver.unshare(shared)
    driver.free(address)
    sys.stdout.write("all was answered\n")


if __name__ == "__main__":
    main()
