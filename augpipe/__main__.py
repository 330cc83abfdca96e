"""The `augpipe` command, which `python -m augpipe` is too."""

import gc


def main() -> None:
    """Run the command; an interrupt while its modules are still loading ends it as any other does."""
    # loading torch makes a million objects that stay: to look among them for garbage, at the usual 700, takes a second
    gc.set_threshold(50_000)
    try:
        from augpipe.cli.app import main as run

        run()
    except KeyboardInterrupt:
        import sys

        print("augpipe: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        gc.freeze()  # and at the end another one


if __name__ == "__main__":
    main()
