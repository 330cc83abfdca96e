"""What trained networks know: several views of each image, several networks, and how sure the numbers are."""

from augpipe.trainer.evaluation.changes import Changes, changes_of, mcnemar
from augpipe.trainer.evaluation.dense import DenseConvNet
from augpipe.trainer.evaluation.ensemble import TOGETHER, Comparison, RunResult, evaluate_runs
from augpipe.trainer.evaluation.metrics import Metrics, Share, measure, wilson
from augpipe.trainer.evaluation.robustness import Robustness, robustness_of
from augpipe.trainer.evaluation.views import Views

__all__ = [
    "TOGETHER",
    "Changes",
    "Comparison",
    "DenseConvNet",
    "Metrics",
    "Robustness",
    "RunResult",
    "Share",
    "Views",
    "changes_of",
    "evaluate_runs",
    "mcnemar",
    "measure",
    "robustness_of",
    "wilson",
]
