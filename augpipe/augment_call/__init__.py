"""The parts of `augpipe.Augment`: its inputs, and how images come about on the CPU and on a device."""
