"""Networks of torchvision and timm, with modules in their place that know as much of their interface as is used."""

import re
import sys
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from augpipe.trainer.models import build, external


class Network(nn.Module):
    def __init__(self, **received: Any) -> None:
        super().__init__()
        self.received = received


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package, models = ModuleType("torchvision"), ModuleType("torchvision.models")

    def list_models(module: ModuleType | None = None) -> list[str]:
        return ["resnet50", "vit_b_16"] + ([] if module is models else ["fasterrcnn_resnet50_fpn"])

    def get_model(name: str, **config: Any) -> nn.Module:
        return Network(name=name, **config)

    models.list_models, models.get_model, package.models = list_models, get_model, models  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    return package


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package = ModuleType("timm")

    def create_model(name: str, pretrained: bool = False, **config: Any) -> nn.Module:
        return Network(name=name, pretrained=pretrained, **config)

    package.is_model = lambda name: name.split(".")[0] == "resnet50"  # type: ignore[attr-defined]
    package.list_models = lambda: ["resnet50"]  # type: ignore[attr-defined]
    package.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", package)
    return package


@pytest.mark.usefixtures("torchvision")
def test_torchvisions_network_is_built() -> None:
    model = build("torchvision:resnet50", num_classes=3, zero_init_residual=True)
    assert isinstance(model, Network)
    assert model.received == {"name": "resnet50", "num_classes": 3, "zero_init_residual": True}


@pytest.mark.usefixtures("timm")
def test_timms_network_is_built() -> None:
    model = build("timm:resnet50.a1_in1k", num_classes=3, drop_rate=0.1)
    assert isinstance(model, Network)
    assert model.received == {"name": "resnet50.a1_in1k", "num_classes": 3, "pretrained": False, "drop_rate": 0.1}


@pytest.mark.usefixtures("torchvision", "timm")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torchvision:resnet5", "torchvision has no classifier 'resnet5' among its 2. Names near it are resnet50."),
        ("torchvision:xyz", "torchvision has no classifier 'xyz' among its 2. torchvision.list_models() lists them."),
        ("torchvision:fasterrcnn_resnet50_fpn", "torchvision has no classifier 'fasterrcnn_resnet50_fpn'"),
        ("timm:resnet5", "timm has no classifier 'resnet5' among its 1. Names near it are resnet50."),
    ],
)
def test_an_unknown_network_is_said(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(name, num_classes=3)


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_a_library_that_is_not_installed_is_said(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # an import of it fails
    with pytest.raises(ImportError, match=f"models of {library} need it installed: pip install {library}"):
        build(f"{library}:resnet50", num_classes=3)


def test_what_a_library_lacks_itself_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named 'yaml', which {name} imports", name="yaml")

    monkeypatch.setattr(external, "import_module", lacks)
    with pytest.raises(ModuleNotFoundError, match="yaml"):
        build("timm:resnet50", num_classes=3)
