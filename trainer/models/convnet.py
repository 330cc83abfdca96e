"""The shape most image networks share: features, a pooled grid of them, and a classifier on that grid."""

from torch import Tensor, nn


class ConvNet(nn.Module):
    """`features`, pooled by `pool` to a grid of fixed size, then `classifier`.

    The pooling lets pictures of any size through. Where the features have the grid's size already, as for pictures of
    the size in the network's source, it changes nothing.
    """

    def __init__(self, features: nn.Module, pool: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.pool = pool
        self.classifier = classifier

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """Logits (N, num_classes) of float pictures (N, C, H, W)."""
        logits: Tensor = self.classifier(self.pool(self.features(images_NCHW)).flatten(1))
        return logits


def fully_connected(in_features: int, widths: tuple[int, ...], num_classes: int, dropout: float) -> nn.Sequential:
    """Linear, ReLU, dropout for each of `widths`, then the linear layer that gives the logits."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(in_features, width), nn.ReLU(inplace=True), nn.Dropout(dropout)]
        in_features = width
    return nn.Sequential(*layers, nn.Linear(in_features, num_classes))
