"""What a cluster is made of, as a TOML file says: devices, links and the rates at which things are done."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from augpipe.trainer.simulate.nics import Node
from augpipe.validation.models import Checked, FieldError

_FOLDER = Path(__file__).parent / "cards"

Rate = Annotated[float, Field(gt=0.0)]
Seconds = Annotated[float, Field(ge=0.0)]


class WireRates(Checked):
    """What is done to a slice by one codec, in bytes of float32 a second (bytes of values, not of payload)."""

    model_config = ConfigDict(allow_inf_nan=False, use_attribute_docstrings=True)

    encode: Rate
    """Into a payload."""
    decode: Rate
    """A payload, over the values."""
    add: Rate
    """A payload, to the values."""


class Card(Checked):
    """A cluster of equal nodes with equal devices, a rank on each."""

    noun = "a card"
    model_config = ConfigDict(allow_inf_nan=False, use_attribute_docstrings=True)

    title: str
    """Its meaning, in a line."""
    devices_per_node: int = Field(ge=1)
    """Ranks on a node; they share its NIC."""
    nic_bytes_per_s: Rate
    """What a node sends and, at the same time, receives."""
    nic_latency_s: Seconds
    """From the last byte's sending to its arrival at another node, with all that a message costs whatever its size."""
    within_bytes_per_s: Rate
    """What a device sends to the others of its node."""
    within_latency_s: Seconds
    """The same within a node."""
    flop_per_s: Rate
    """What a device reaches in convolutions and matrix products, two operations a multiplication and addition; its
    peak × what is reached of it."""
    cores: int = Field(default=1, ge=1)
    """Computations that a device carries out at a time; what else is to be computed waits. 2 lets a GPU encode during a
    layer, at no cost to it."""
    machine_cores: int | None = Field(default=None, ge=1)
    """Where all nodes are one machine: computations that they carry out at a time, all together. Left out: each device
    has `cores` of its own."""
    collectives_at_once: int = Field(default=1, ge=1)
    """Collectives of a rank that are on their way at a time: 2 under Gloo, 1 on an NCCL communicator."""
    socket_bytes_per_s: Rate | None = None
    """Payload bytes a second that a core hands to the network, and takes from it; left out: it takes none."""
    copy_bytes_per_s: Rate
    """Float32 a second, copied within a device's memory."""
    optimizer_bytes_per_s: Rate
    """Bytes of float32 weights a second that the optimizer updates."""
    wires: dict[str, WireRates]
    """Rates by codec, "fp32" among them."""

    @model_validator(mode="after")
    def _knows_fp32(self) -> Self:
        if "fp32" not in self.wires:
            raise ValueError(
                "wires has no fp32, by which what no codec encodes travels. Add [wires.fp32] with encode, decode, add."
            )
        return self

    def wire(self, codec: str) -> WireRates:
        """The rates of a codec.

        Raises:
            ValueError: the card does not have them.
        """
        if codec not in self.wires:
            raise ValueError(
                f"codec {codec}: the card {self.title!r} has no rates of it, only of {', '.join(self.wires)}. "
                f"Add [wires.{codec}] to a copy of the card, or choose one of these."
            )
        return self.wires[codec]

    def handling_s(self, sent: int) -> float:
        """Seconds of a core that handing so many bytes to the network takes, and taking as many from it."""
        return 0.0 if self.socket_bytes_per_s is None else 2 * sent / self.socket_bytes_per_s

    def num_nodes(self, ranks: int) -> int:
        """Nodes that so many ranks take; the last one may have devices to spare."""
        return -(-ranks // self.devices_per_node)

    def nodes(self, ranks: int) -> list[Node]:
        """The node of each rank: those next to each other share one."""
        made = [
            Node(
                name=f"node {number}",
                up_bytes_per_s=self.nic_bytes_per_s,
                down_bytes_per_s=self.nic_bytes_per_s,
                latency_s=self.nic_latency_s,
                within_bytes_per_s=self.within_bytes_per_s,
                within_latency_s=self.within_latency_s,
            )
            for number in range(self.num_nodes(ranks))
        ]
        return [made[rank // self.devices_per_node] for rank in range(ranks)]


def list_cards() -> list[str]:
    """The names that `load_card` knows, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_card(name: str | os.PathLike[str]) -> Card:
    """A card by its name, or of a TOML file.

    Raises:
        ValueError: there is none of that name, or a field is wrong; names field and remedy.
        OSError: the file cannot be read.
    """
    text = os.fspath(name)
    path = Path(text) if text.endswith(".toml") else _FOLDER / f"{text}.toml"
    if not path.is_file() or (path.parent == _FOLDER and path.stem not in list_cards()):
        raise ValueError(
            f"card={text!r} is not known. Choose one of {', '.join(list_cards())}, or give a TOML file of your own."
        )
    try:
        return Card.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid TOML: {error}.") from error
    except FieldError as error:
        raise ValueError(f"{path}: not a valid card:\n" + "\n".join(f"  {line}" for line in error.lines)) from None
