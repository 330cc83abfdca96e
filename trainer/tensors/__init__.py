"""Tensors in files of safetensors, read whole or by boxes; nothing here knows what they are for."""
