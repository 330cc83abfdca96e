"""What rendering on the CPU takes: threads, memory that is used again, and the call of the kernel."""
