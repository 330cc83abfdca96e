"""Latches: passed once, for whoever waits before and after."""

import threading

from augpipe.native.workers import Latch


def test_a_latch_is_passed_once_for_all() -> None:
    latch = Latch()
    assert not latch.is_set() and not latch.wait(0.01)
    came: list[bool] = []
    waiting = [threading.Thread(target=lambda: came.append(latch.wait(60))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    latch.set()
    latch.set()
    for thread in waiting:
        thread.join()
    assert came == [True] * 3
    assert latch.is_set() and latch.wait() and latch.wait(0.01)
