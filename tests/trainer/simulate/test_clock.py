"""The virtual clock: time jumps, order is repeated, and a deadlock has names."""

import asyncio
import re
import time

import pytest

from augpipe.trainer.simulate.clock import Deadlock, run_virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_year_passes_at_once() -> None:
    async def sleep() -> str:
        await asyncio.sleep(365 * 86400)
        return "slept"

    begun_s = time.monotonic()
    assert run_virtual(sleep()) == ("slept", 365 * 86400)
    assert time.monotonic() - begun_s < 60


def test_timers_fire_by_time_and_those_of_one_time_as_they_were_set() -> None:
    fired: list[tuple[float, int]] = []

    async def set_timers() -> None:
        loop = asyncio.get_running_loop()
        for i in range(200):
            loop.call_at(float(i % 3), lambda i=i: fired.append((now_s(), i)))
        await asyncio.sleep(5)

    run_virtual(set_timers())
    assert fired == [(float(at), i) for at in range(3) for i in range(at, 200, 3)]


def test_what_is_ready_goes_before_time_and_a_passed_time_fires_now() -> None:
    trace: list[str] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(2)
        loop.call_later(1, trace.append, "later")
        loop.call_at(1, lambda: trace.append(f"passed at {now_s()}"))
        for _ in range(3):
            await asyncio.sleep(0)
            trace.append(f"ready at {now_s()}")
        await asyncio.sleep(2)

    run_virtual(program())
    assert trace.pop() == "later"
    assert sorted(trace) == ["passed at 2.0", *["ready at 2.0"] * 3]


def test_a_cancelled_timer_takes_no_time() -> None:
    async def program() -> None:
        asyncio.get_running_loop().call_later(100, print).cancel()
        async with asyncio.timeout(50):
            await asyncio.sleep(1)

    assert run_virtual(program())[1] == 1


def test_a_timeout_is_virtual() -> None:
    async def program() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        return now_s()

    assert run_virtual(program()) == (30, 30)


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def wait(event: asyncio.Event) -> None:
        await event.wait()

    async def program() -> None:
        never = asyncio.Event()
        await asyncio.sleep(3)
        async with asyncio.TaskGroup() as group:
            for i in range(2):
                group.create_task(wait(never), name=f"worker {i}")

    with pytest.raises(Deadlock, match=re.escape("at 3 virtual seconds")) as caught:
        run_virtual(program())
    assert "3 tasks wait" in str(caught.value)
    assert "worker 0 (Event.wait, line" in str(caught.value)
    assert "worker 1 (Event.wait, line" in str(caught.value)


def test_what_a_program_raises_comes_out_and_the_tasks_it_leaves_are_cancelled() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stay")

    async def program() -> None:
        task = asyncio.create_task(stay())
        await asyncio.sleep(1)
        raise KeyError(task.get_name())

    with pytest.raises(KeyError):
        run_virtual(program())
    assert ended == ["stay"]
