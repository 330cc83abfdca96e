"""A decoder of JPEGs that decodes no more of an image than a region of it needs, on the CPU: numpy and numba only.

Read `decode.py` first. It takes what nearly every photograph is, and hands all else to libjpeg-turbo, whose pixels it
gives bit for bit.
"""
