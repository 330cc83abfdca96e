"""The image kernel: leaves, the table that it reads, and the CPU's loop; the CUDA loop is in `cuda/`."""
