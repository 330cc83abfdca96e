"""What needs a CUDA device, or the code that runs on one."""
