"""`python -m augpipe` is the `augpipe` command."""

from augpipe.cli.app import main

if __name__ == "__main__":
    main()
