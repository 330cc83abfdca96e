"""The CUDA loop over the same leaves, and its launch; for who works on that backend."""
