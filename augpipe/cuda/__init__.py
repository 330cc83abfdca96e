"""The runtime on CUDA devices: memory, streams, lifetimes and failures; its modules import torch and numba-cuda."""
