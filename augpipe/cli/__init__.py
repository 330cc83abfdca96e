"""The `augpipe` command."""
