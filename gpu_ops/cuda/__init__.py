"""The CUDA loops over the same leaves as the CPU's; nothing here is loaded until it is imported by name."""
