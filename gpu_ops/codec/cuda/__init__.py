"""The codecs' CUDA loops and their launch; for who works on that backend."""
