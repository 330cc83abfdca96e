"""What numba's CUDA simulator takes in place of a device's memory; for who works on CUDA kernels."""
