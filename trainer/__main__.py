"""`python -m augpipe.trainer CONFIG`, alone or by torchrun: one rank of a training run."""

import os
import sys

from augpipe.trainer.launch import end_after, main


def _end(code: int) -> None:
    """Exit without waiting for threads that sit in an exchange with the dead."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except (Exception, KeyboardInterrupt) as error:
        from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

        if "TORCHELASTIC_ERROR_FILE" in os.environ:  # torchrun's report then shows this traceback as the cause
            ErrorHandler().record_exception(error)
        _end(end_after(error))
    sys.exit(code)
