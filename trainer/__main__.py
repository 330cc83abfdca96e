"""`python -m augpipe.trainer CONFIG`, alone or by torchrun: one rank of a training run."""

import gc
import os
import sys


def _run() -> int:
    from augpipe.trainer.launch import end_after, main

    try:
        return main(sys.argv[1:])
    except (Exception, KeyboardInterrupt) as error:
        if "TORCHELASTIC_ERROR_FILE" in os.environ:  # torchrun's report then shows this traceback as the cause
            from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

            ErrorHandler().record_exception(error)
        code = end_after(error)
        _end(code)
        return code


def _end(code: int) -> None:
    """Exit without waiting for threads that sit in an exchange with the dead."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    gc.set_threshold(50_000)  # as the `augpipe` command
    try:
        sys.exit(_run())
    except KeyboardInterrupt:  # while modules are loading, or while another error is told
        print("augpipe: interrupted", file=sys.stderr)
        _end(130)
    finally:
        gc.freeze()
