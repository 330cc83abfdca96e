"""Whether numba's CUDA simulator stands in for a device."""

from numba import config

IS_SIMULATED = bool(config.ENABLE_CUDASIM)
"""Set by NUMBA_ENABLE_CUDASIM=1 in the environment, before numba is first imported."""
