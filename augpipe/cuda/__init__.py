"""The runtime on CUDA devices, for who works on that backend: memory, streams, lifetimes, failures; imports torch."""
