"""What CUDA kernels are made of and launched by, for who works on that backend; nothing is loaded until asked for."""
