"""augpipe inside DALI: the op for a pipeline of one's own. Nothing of DALI is imported before it is used."""

from augpipe.dali.pipeline_op import augment

__all__ = ["augment"]
