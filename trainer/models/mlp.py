"""The fully connected networks for MNIST: Dettmers' and Mullapudi's."""

from collections.abc import Callable, Sequence

from torch import nn

from augpipe.trainer.models.layers import check_dropout, check_widths, initialise
from augpipe.validation.arguments import as_count


def mnist_mlp(
    *,
    num_classes: int,
    hidden: Sequence[int] = (1024, 1024),
    dropout: Sequence[float] = (0.2, 0.3, 0.3),
    in_features: int = 784,
) -> nn.Module:
    """784-1024-1024-10 with ReLU and dropout on the input and both hidden layers (Dettmers, section 3.2).

    Takes images of `in_features` numbers in any shape, (N, 1, 28, 28) or (N, 784). With 10 classes it has 1,863,690
    weights and biases. No deviation but the softmax, which is left to the loss.
    """
    if not isinstance(dropout, list | tuple) or len(dropout) != 3:
        raise ValueError(f"dropout={dropout!r} must be a list of 3 numbers: for the input and both hidden layers.")
    rates = [check_dropout(f"dropout[{index}]", rate) for index, rate in enumerate(dropout)]
    return _mlp(in_features, check_widths("hidden", hidden, 2), num_classes, rates, nn.ReLU, "relu")


def mullapudi_mlp(
    *,
    num_classes: int,
    hidden: Sequence[int] = (64, 64),
    dropout: float = 0.5,
    in_features: int = 784,
) -> nn.Module:
    """64-64-10 with tanh and dropout after both hidden layers (Mullapudi, 2017, its experiment on MNIST).

    Takes images of `in_features` numbers in any shape. With 10 classes it has 55,050 weights and biases. Deviations:
    the thesis gives no rate of dropout; one half is that of the paper it cites. Its L2 regulariser is the optimizer's
    weight decay, and the softmax is left to the loss.
    """
    rate = check_dropout("dropout", dropout)
    return _mlp(in_features, check_widths("hidden", hidden, 2), num_classes, [0.0, rate, rate], nn.Tanh, "tanh")


def _mlp(
    in_features: int,
    hidden: tuple[int, ...],
    num_classes: int,
    rates: Sequence[float],
    activation: Callable[[], nn.Module],
    nonlinearity: str,
) -> nn.Module:
    features = as_count("in_features", in_features)
    layers: list[nn.Module] = [nn.Flatten(), nn.Dropout(rates[0])]
    for width, rate in zip(hidden, rates[1:], strict=True):
        layers += [nn.Linear(features, width), activation(), nn.Dropout(rate)]
        features = width
    model = nn.Sequential(*layers, nn.Linear(features, num_classes))
    initialise(model, nonlinearity=nonlinearity)
    return model
