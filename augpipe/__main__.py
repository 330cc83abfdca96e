"""The `augpipe` command, which `python -m augpipe` is too."""


def main() -> None:
    """Run the command; an interrupt while its modules are still loading ends it as any other does."""
    try:
        from augpipe.cli.app import main as run

        run()
    except KeyboardInterrupt:
        import sys

        print("augpipe: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
