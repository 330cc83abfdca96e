"""What the dispatcher does with workers that hang, come back, or are of another run."""

import asyncio
from pathlib import Path

import pytest

from augpipe.trainer.config.tables import ScheduleConfig
from augpipe.trainer.servers.dispatcher import Dispatcher, RunFailed
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Grant, Outcome
from augpipe.trainer.servers.specs import DispatcherSpec
from augpipe.trainer.simulate.clock import run_virtual

OUTCOME = Outcome(
    loss_sum=1.0,
    num_correct=1,
    num_samples=4,
    is_finite=True,
    wait_s=0.0,
    data_s=0.0,
    compute_s=0.0,
    push_s=0.0,
    sent_bytes=0,
    got_bytes=0,
)


class Silent:
    """A server that does nothing, at once."""

    def call(self, method: str, /, *args: object) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def dispatcher(num_samples: int = 16, **settings: object) -> Dispatcher:
    spec: dict[str, object] = {
        "mode": "async",
        "schedule": ScheduleConfig(name="constant"),
        "digest": "ours",
        **settings,
    }
    plan = LeasePlan(
        num_samples=num_samples,
        batch_size=4,
        num_shares=2 if spec["mode"] == "sync" else 1,
        group_size=1,
        num_batches=1,
        drop_last=False,
    )
    return Dispatcher(DispatcherSpec(plan=plan, **spec), [Silent()])


async def begun(made: Dispatcher, *workers: int) -> None:
    await made.fence()
    await made.go_on("checkpoint", 1.0)
    for worker in workers:
        await made.join(worker, "ours")


async def granted(made: Dispatcher, worker: int) -> Grant:
    grant = await asyncio.wait_for(made.next(worker), 5)
    assert grant is not None
    return grant


def test_a_worker_that_hangs_loses_its_lease_and_may_come_back_afresh() -> None:
    async def run() -> None:
        made = dispatcher(lease_timeout_s=0.05)
        await begun(made, 0)
        late = await granted(made, 0)
        await asyncio.sleep(0.2)
        await made.join(1, "ours")
        again = await granted(made, 1)
        assert again.lease.name == late.lease.name._replace(attempt=1)
        assert not await made.commit(0, late.lease.name, OUTCOME)
        assert await made.commit(1, again.lease.name, OUTCOME)
        back = await granted(made, 0)
        assert back.afresh and back.weights is not None
        assert back.lease.name.number == 2  # the one before is kept for the other worker
        assert await made.commit(0, back.lease.name, OUTCOME)
        _, notes = await made.drain()
        assert notes == ["worker 0 is gone: it has had a lease for 0.05 s", "worker 0 is back"]

    asyncio.run(run())


def test_who_says_nothing_for_as_long_again_hangs_and_who_calls_or_ends_does_not() -> None:
    async def run() -> None:
        made = dispatcher(num_samples=40, lease_timeout_s=0.2)
        await begun(made, 0, 1, 2)
        for worker in range(3):
            await granted(made, worker)
        hanging = asyncio.ensure_future(made.hanging())
        await asyncio.sleep(0.3)
        assert not hanging.done()
        await granted(made, 0)
        await made.left(1, "it was killed")
        assert await asyncio.wait_for(hanging, 5) == 2
        again = asyncio.ensure_future(made.hanging())
        await asyncio.sleep(0.05)  # the new lease of worker 0 is late, but not for twice the time
        assert not again.done()
        again.cancel()

    run_virtual(run())


def test_a_worker_of_another_run_is_refused() -> None:
    async def run() -> None:
        with pytest.raises(
            ValueError, match=r"worker 3 has another network, codec or source than the run \(theirs, not"
        ):
            await dispatcher().join(3, "theirs")

    asyncio.run(run())


def test_a_step_that_waited_for_what_is_not_finite_is_applied() -> None:
    """The last step of an epoch, of which one of two shares is left out."""

    async def run() -> None:
        made = dispatcher(num_samples=8, mode="sync", num_counted=2, on_nan="skip")
        await begun(made, 0, 1)
        first, second = await granted(made, 0), await granted(made, 1)
        assert await made.commit(0, first.lease.name, OUTCOME) and made.version == 0
        bad = Outcome(**{**vars(OUTCOME), "is_finite": False})
        assert not await made.commit(1, second.lease.name, bad)
        assert made.version == 1
        fence = await asyncio.wait_for(made.fence(), 5)
        assert fence.is_last and fence.epochs_done == 1
        (applied,), notes = await made.drain()
        assert applied.num_left_out == 1
        assert notes == ["worker 1: a loss or gradient that is not finite was left out"]

    asyncio.run(run())


def test_what_is_not_finite_ends_the_run_where_that_is_asked_for(tmp_path: Path) -> None:
    async def run() -> None:
        made = dispatcher()
        await begun(made, 5)
        grant = await granted(made, 5)
        await made.commit(5, grant.lease.name, Outcome(**{**vars(OUTCOME), "is_finite": False}))
        with pytest.raises(
            RunFailed, match=r"worker 5 was not finite after update 0.* The last checkpoint is checkpoint"
        ):
            await made.fence()

    asyncio.run(run())


def test_no_more_updates_than_asked_for() -> None:
    async def run() -> None:
        made = dispatcher(num_samples=40, max_steps=3)
        await begun(made, 0, 1, 2, 3)
        grants = [await granted(made, worker) for worker in range(3)]
        waits = asyncio.ensure_future(made.next(3))
        for worker, grant in enumerate(grants):
            await made.commit(worker, grant.lease.name, OUTCOME)
        fence = await asyncio.wait_for(made.fence(), 5)
        assert fence.is_last and fence.version == 3 and not waits.done()
        await made.go_on("checkpoint", 1.0)
        assert await asyncio.wait_for(waits, 5) is None

    asyncio.run(run())
