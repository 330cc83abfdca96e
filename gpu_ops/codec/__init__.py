"""The codecs' leaves and CPU loops; the CUDA loops are in `cuda/`."""
