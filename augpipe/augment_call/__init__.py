"""The parts of `augpipe.Augment`: what it takes, and how images come about on the CPU and on a device."""
