"""Latches: passed once, for all that wait before and after."""

import sys
import threading

from augpipe.native.workers import Latch


def test_a_latch_is_passed_once_for_all() -> None:
    latch = Latch()
    assert not latch.is_set()
    came: list[bool] = []

    def wait() -> None:
        latch.wait()
        came.append(latch.is_set())

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    latch.set()
    latch.set()
    for thread in waiting:
        thread.join()
    assert came == [True] * 3
    latch.wait()
    assert latch.is_set()


def test_a_passed_latch_stays_passed_while_others_wait_for_it_and_pass_it_again() -> None:
    latch, problems = Latch(), list[str]()
    latch.set()

    def wait() -> None:
        try:
            for _ in range(20_000):
                latch.wait()
        except RuntimeError as problem:
            problems.append(str(problem))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for thread in waiting:
            thread.start()
        while any(thread.is_alive() for thread in waiting):
            latch.set()
            if not latch.is_set():
                problems.append("not set")
                break
        for thread in waiting:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert problems == []
