"""Nobody waits for the dead: how a rank's end, by error or kill, becomes the end of all, with its reason."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from augpipe.trainer.loop.heartbeat import Heartbeat, PeerError, describe_process, is_exchange_failure
from augpipe.trainer.loop.world import World


@contextmanager
def together(world: World, timeout_s: float) -> Iterator[None]:
    """Give signs of life while the body runs, and pass on why it ended if it did not end as it should.

    Raises:
        PeerError: the body failed in an exchange because another rank has died; names it and its reason.
    """
    heartbeat = Heartbeat(world.store, world.rank, world.size, timeout_s)
    heartbeat.start()
    try:
        yield
    except Exception as error:
        cause = heartbeat.await_obituary() if is_exchange_failure(error) else None
        if cause is not None:
            raise PeerError(f"{describe_process(world.rank)} ends: {cause}") from error
        heartbeat.report(f"{describe_process(world.rank)} failed\n{traceback.format_exc()}")
        raise
    except BaseException as error:
        heartbeat.report(f"{describe_process(world.rank)} was ended by {type(error).__name__}")
        raise
    finally:
        heartbeat.stop()
