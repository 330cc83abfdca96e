"""Gradients, links, servers, codecs."""
