"""Model-data parallelism: a network's fully connected layers split among the ranks of a model axis."""

from augpipe.trainer.parallel.build_split import build_split
from augpipe.trainer.parallel.logits import SplitLogits, cross_entropy, likeliest
from augpipe.trainer.parallel.mesh import Mesh, make_mesh
from augpipe.trainer.parallel.split import Split, split

__all__ = ["Mesh", "Split", "SplitLogits", "build_split", "cross_entropy", "likeliest", "make_mesh", "split"]
