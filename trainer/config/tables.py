"""The config of a run, table by table."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from augpipe.validation.models import Checked, broken, refuse_unknown, told

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
OptimizerName = Literal["sgd", "rmsprop", "adagrad", "adamw"]


class Section(Checked):
    """A table of the TOML file; the docstring under a field is its description wherever one is shown."""

    model_config = ConfigDict(allow_inf_nan=False, use_attribute_docstrings=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            refuse_unknown(cls._title(), data, list(cls.model_fields))
        return data

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes True for 1, and pydantic with it."""
        numbers = _numbers_in(cls.model_fields[info.field_name or ""].annotation)
        if numbers and _holds_bool(value):
            is_list = isinstance(value, (list, tuple))
            what = "number" if float in numbers else "whole number"
            raise broken(f"must be {what}s" if is_list else f"must be a {what}")
        return value

    @classmethod
    def _title(cls) -> str:
        """How messages name the section."""
        name = cls.__name__.removesuffix("Config").lower()
        return "the config" if name == "run" else f"[{name}]"


def _numbers_in(annotation: Any) -> set[type]:
    """int and float, as far as a field takes them and no bool."""
    inner = {one for part in get_args(annotation) for one in _numbers_in(part)}
    return inner | ({annotation} if annotation in (int, float) else set())


def _holds_bool(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_bool, value.values()))
    return isinstance(value, bool) or (isinstance(value, (list, tuple)) and any(map(_holds_bool, value)))


class DataConfig(Section):
    """The `[data]` table."""

    source: str
    """What to train on: a folder of class folders, shards, a list, tar, Parquet, IDX or CIFAR files."""
    split: str | None = None
    """The part of source to train on, where that is a folder of several parts or a list with a column split: train."""
    eval_source: str | None = None
    """What to evaluate on, of the same classes. Without it, eval_split and eval_fraction, nothing is evaluated."""
    eval_split: str | None = None
    """The part of eval_source, or without one of source, to evaluate on: val, test or another."""
    eval_fraction: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of `source` that is held out for evaluation instead, drawn once by the run's seed."""
    recipe: str = "deep_image"
    """The augmentation: deep_image, trivial_augment_wide, rand_augment, auto_augment, three_augment, evaluation, or a
    TOML file of a recipe (augpipe recipe writes one) or of a schedule."""
    size: int = Field(default=224, ge=1)
    """Height and width of the images, in pixels, for recipes by name; a TOML file has its own."""
    scales: tuple[int, ...] = (256, 512)
    """Short sides that deep_image resizes to before it crops, in pixels; one is drawn."""
    eval_recipe: str | None = None
    """What makes the images for evaluation: a recipe's name, as evaluation, or a TOML file; left out: the centre, of
    recipe's size, normalised alike."""
    eval_scale: int | None = Field(default=None, ge=1)
    """Short side for evaluation without eval_recipe, in pixels; left out: 8/7 of recipe's size, as 256 for 224, or what
    a recipe with a chain of crops resizes to."""
    batch_size: int = Field(default=64, ge=1)
    """Images in a batch of one rank."""
    eval_batch_size: int | None = Field(default=None, ge=1)
    """Images in a batch of one rank at evaluation; left out: batch_size."""
    shuffle: Literal["plain", "sticky", "off"] = "plain"
    """The order: a new one each epoch; sticky: a new one in which a rank keeps its samples (for caches); off."""
    sampler: Literal["off", "weighted", "class-balanced", "repeated"] = "off"
    """Which images an epoch holds: off: each once; weighted: drawn by sampler_weights; class-balanced: each class as
    often; repeated: each sampler_times, with draws of their own."""
    sampler_weights: (
        Annotated[
            str | dict[str, float], told("must be a file of numbers or a table of classes: {name} = { cat = 2.0 }")
        ]
        | None
    ) = None
    """For weighted: a number a class, 1 for those left out, as { cat = 2.0 }; or a file with a number for each image of
    source, in its order: a line each, or .npy."""
    sampler_times: int | None = Field(default=None, ge=1)
    """For repeated: how often each image comes in an epoch."""
    sampler_num: int | None = Field(default=None, ge=1)
    """For weighted and class-balanced: images in an epoch; left out: as many as are trained on."""
    drop_last: bool = True
    """Leave out the last global batch of an epoch where it is cut short. Off: each sample counts once an epoch."""
    num_threads: int | None = Field(default=None, ge=1)
    """Threads of one rank that decode and augment; left out: its share of the machine's cores."""
    prefetch: int = Field(default=2, ge=1)
    """Batches made ahead."""
    backend: Literal["auto", "native", "dali"] = "auto"
    """What decodes: augpipe's own threads, or NVIDIA DALI on a CUDA device."""
    cache: Literal["off", "host", "device"] = "off"
    """Keep decoded images from the first epoch on, in host memory or where batches are made."""
    on_error: Literal["raise", "skip"] = "raise"
    """An image that cannot be used ends the run, or is replaced and reported."""

    @property
    def evaluates(self) -> bool:
        """Whether there is anything to evaluate on."""
        return self.eval_source is not None or self.eval_split is not None or self.eval_fraction > 0

    @model_validator(mode="after")
    def _evaluates_one_way(self) -> Self:
        for name in ("eval_source", "eval_split") if self.eval_fraction > 0 else ():
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} and eval_fraction={self.eval_fraction:g} are two ways to get "
                    "pictures for evaluation. Keep one."
                )
        if self.eval_source is None and self.eval_split is not None and self.split is None:
            raise ValueError(
                f"eval_split={self.eval_split!r} is a part of source, all of which is trained on. Give split, too, as "
                'split="train".'
            )
        if self.eval_recipe is not None and self.eval_scale is not None:
            raise ValueError(
                f"eval_recipe={self.eval_recipe!r} has a crop of its own, and eval_scale={self.eval_scale} is for "
                "evaluation without it. Keep one."
            )
        return self

    @model_validator(mode="after")
    def _samples_one_way(self) -> Self:
        if self.sampler != "off" and self.shuffle != "plain":
            raise ValueError(
                f"sampler={self.sampler!r} sets the order, and shuffle={self.shuffle!r} asks for another one. Leave "
                "one of the two out."
            )
        for name, samplers, is_needed in (
            ("sampler_weights", ("weighted",), True),
            ("sampler_times", ("repeated",), True),
            ("sampler_num", ("weighted", "class-balanced"), False),
        ):
            value, is_taken = getattr(self, name), self.sampler in samplers
            if value is not None and not is_taken:
                raise ValueError(
                    f"{name}={value!r} is for sampler={' and '.join(map(repr, samplers))}, and sampler is "
                    f"{self.sampler!r}. Leave one of the two out."
                )
            if value is None and is_taken and is_needed:
                raise ValueError(f"sampler={self.sampler!r} needs {name}. Add it, or leave the sampler out.")
        return self


class ModelConfig(Section):
    """The `[model]` table."""

    name: str = "small-cnn"
    """A network of augpipe.trainer.models, or torchvision:NAME or timm:NAME where those are installed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Other arguments of the network's builder than num_classes, as { width = 64 }."""
    num_classes: int | None = Field(default=None, ge=2)
    """Outputs; left out: as many as the source has classes."""
    weights: str | None = None
    """A file to start from (weights only: no code in it is run); what does not match is listed, and ends the run."""
    new_head: bool = False
    """With weights: start the last layer at random if the file's has another shape, as for other classes."""
    trainable: Annotated[
        str,
        Field(pattern="^(all|last|last-fc:[1-9][0-9]*)$"),
        told("must be 'all', 'last', or 'last-fc:N' with N from 1 on"),
    ] = "all"
    """Which layers train: all, last, or last-fc:N for the last N fully connected layers."""
    dropout: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Probability for every dropout layer of the network; left out: as the network has them."""
    channels_last: bool = False
    """Hold weights and images as NHWC in memory, which convolutions on newer GPUs prefer."""
    compile: bool = False
    """Run the network through torch.compile."""
    sync_batchnorm: bool = False
    """Batch normalisation over all ranks' batches; CUDA only."""


class OptimConfig(Section):
    """The `[optim]` table."""

    name: OptimizerName = "adamw"
    """The optimizer, as torch.optim has it. The papers' is sgd."""
    lr: float = Field(default=0.002, gt=0.0)
    """Learning rate for the whole global batch; the schedule multiplies it. The default suits adamw and small-cnn,
    for which sgd wants 0.01."""
    momentum: float = Field(default=0.9, ge=0.0, lt=1.0)
    """The momentum of sgd and rmsprop."""
    nesterov: bool = False
    """Whether sgd uses Nesterov's momentum."""
    alpha: float = Field(default=0.99, ge=0.0, lt=1.0)
    """How slowly rmsprop's mean of squares moves."""
    betas: Annotated[tuple[Beta, Beta], told("must be two numbers from 0 to below 1: {name}=[0.9, 0.999]")] = (
        0.9,
        0.999,
    )
    """adamw's two decay rates."""
    eps: float | None = Field(default=None, gt=0.0)
    """The least divisor of rmsprop, adagrad and adamw; left out: torch's own."""
    weight_decay: float = Field(default=0.0005, ge=0.0)
    """L2 penalty; adamw's is decoupled. The default is Deep Image's and AlexNet's."""
    decay_1d: bool = True
    """Whether weight decay also pulls at 1-D tensors: biases, and scales and shifts of normalisation."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the target that is spread over all classes."""
    accumulate: int = Field(default=1, ge=1)
    """Batches whose gradients are added up before an update; the global batch grows by it."""
    clip_norm: float | None = Field(default=None, gt=0.0)
    """Longest the gradient of all weights together may be (L2); left out: any length."""
    amp: Literal["off", "bf16", "fp16"] = "off"
    """Automatic mixed precision; fp16 scales the loss, and a step in which any rank overflows is left out by all."""

    @model_validator(mode="after")
    def _suits(self) -> Self:
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise ValueError('nesterov=true needs name="sgd" and momentum above 0. Leave it out, or change those.')
        return self


class ScheduleConfig(Section):
    """The `[schedule]` table: the learning rate over time, which is counted in epochs, whatever the world size."""

    name: Literal["constant", "step", "cosine", "plateau"] = "cosine"
    """cosine: down to min_factor at the end; step: by gamma at every milestone; plateau: by gamma where the
    evaluation no longer improves, as the Deep Image papers do by ten."""
    warmup_epochs: float = Field(default=0.0, ge=0.0)
    """The rate grows in a straight line from 0 for so long; fractions are fine."""
    milestones: tuple[float, ...] = ()
    """After which epochs step lowers the rate."""
    gamma: float = Field(default=0.1, gt=0.0, lt=1.0)
    """The factor of step and plateau."""
    min_factor: float = Field(default=0.0, ge=0.0, le=1.0)
    """The least that cosine and plateau multiply the rate by."""
    patience: int = Field(default=2, ge=0)
    """How many evaluations without a better loss plateau waits for."""
    threshold: float = Field(default=0.001, ge=0.0)
    """For plateau a loss counts as better if it is lower by this share."""

    @model_validator(mode="after")
    def _suits(self) -> Self:
        if self.name == "step" and not self.milestones:
            raise ValueError('name="step" needs milestones, as [30, 60, 80]: the epochs after which the rate falls.')
        if list(self.milestones) != sorted(self.milestones):
            raise ValueError(f"milestones={list(self.milestones)} must rise.")
        return self


class EmaConfig(Section):
    """The `[ema]` table: a second set of weights, the exponential moving average, which is what gets evaluated."""

    decay: float | None = Field(default=None, gt=0.0, lt=1.0)
    """The average's decay per step; left out: no average is kept."""
    every: int = Field(default=8, ge=1)
    """Steps between two updates, which use decay ** every. Each one waits for whatever weights are under way."""


class SyncConfig(Section):
    """The `[sync]` table."""

    strategy: Literal["ddp", "butterfly", "lazy"] = "ddp"
    """ddp: torch's own; butterfly: each rank sums its share of the gradient; lazy: each rank also keeps its share of
    the optimizer and sends updates, which are waited for only where they are used."""
    codec: str = "fp32"
    """What is sent: fp32, bf16, dynamic-tree, dynamic-map, linear, mantissa, static-tree, nf4, one-bit."""
    bucket_bytes: int | None = Field(default=None, ge=1)
    """Gradients that travel together, in bytes of float32; unset: 4 MiB, or 25 MiB for ddp without a codec."""
    error_feedback: bool = False
    """Add what encoding lost to the next step's gradient."""
    exempt_1d: bool = True
    """Send 1-D tensors (biases, normalisation) as float32 whatever the codec."""


class ParallelConfig(Section):
    """The `[parallel]` table: ranks share fully connected layers as well as the data (Deep Image, 3.2)."""

    model: int = Field(default=1, ge=1)
    """Ranks among which a layer is split; it divides the number of ranks, and those next to each other share. 1: no
    layer is split."""
    layers: tuple[str, ...] = ()
    """Which layers are split, by names and patterns, as ["classifier.*"]; empty: the fully connected ones of this
    package's networks."""
    scheme: Literal["gather", "rotate"] = "gather"
    """gather: a batch's features are exchanged at once; rotate: in as many pieces as there are model ranks, each
    exchanged while another is computed."""
    activations: str = "fp32"
    """The codec of the features that are exchanged; see sync.codec."""
    deltas: str = "fp32"
    """That of their error deltas on the way back."""
    logits: Literal["whole", "split"] = "whole"
    """split: the network's outputs stay with the ranks that made them, and the loss is computed where they are."""


class ServersConfig(Section):
    """The `[servers]` table: training through parameter servers, on a Ray cluster, instead of by ranks that agree."""

    mode: Literal["off", "sync", "async", "mixed"] = "off"
    """off: no servers; sync: the mean of a step's pushes is applied; async: each push is applied at once (Downpour);
    mixed: groups of processes average among themselves, and push as one, asynchronously."""
    workers: int = Field(default=2, ge=1)
    """Workers that count: those of a synchronous step; in mixed mode, groups."""
    servers: int = Field(default=1, ge=1)
    """Servers, each with a slice of the weights and of the optimizer's state."""
    backup: int = Field(default=0, ge=0)
    """For sync: workers beyond those that count; the first pushes of a step are taken."""
    group: int = Field(default=2, ge=2)
    """For mixed: processes of a group."""
    push_every: int = Field(default=1, ge=1)
    """For async: batches that a worker sums up before it pushes, with steps of its own between them."""
    fetch_every: int = Field(default=1, ge=1)
    """For async: batches between two fetches of the weights; a multiple of push_every."""
    local_lr: float | None = Field(default=None, gt=0.0)
    """Learning rate of a worker's own steps (plain SGD) between two fetches; left out: optim.lr."""
    staleness: int | None = Field(default=None, ge=0)
    """Pushes that a worker may be ahead of the slowest one before it waits; left out: any number."""
    delay_compensation: Literal["off", "constant", "adaptive"] = "off"
    """How servers correct gradients of old weights (DC-ASGD)."""
    compensation: float | None = Field(default=None, ge=0.0)
    """DC-ASGD's lambda; left out: the paper's, 0.04 constant or 2 adaptive."""
    codec: str = "dynamic-tree"
    """What gradients are pushed in; see sync.codec."""
    error_feedback: bool = True
    """Add what encoding lost to the worker's next push."""
    pull: str = "whole"
    """whole: weights are fetched as float32; or a codec, in which what changed since the worker's last fetch goes."""
    address: str | None = None
    """The Ray cluster's, as "auto" or "ray://head:10001"; left out: one on this machine, only for this run."""
    placement: Literal["shared", "dedicated"] = "shared"
    """shared: servers lie on nodes of workers; dedicated: on nodes of their own."""
    threads: int = Field(default=1, ge=1)
    """Threads with which a worker or server computes; a run's bits depend on it."""
    restarts: int = Field(default=3, ge=0)
    """How often a worker that has died is restarted."""

    @model_validator(mode="after")
    def _suits(self) -> Self:
        if self.fetch_every % self.push_every:
            raise ValueError(
                f"fetch_every={self.fetch_every} is not a multiple of push_every={self.push_every}. Weights are "
                "fetched after a push: make it one."
            )
        if self.fetch_every > 1 and self.mode not in ("async", "off"):
            raise ValueError(
                f'push_every={self.push_every} and fetch_every={self.fetch_every} are for mode="async". Leave them out.'
            )
        if self.backup and self.mode not in ("sync", "off"):
            raise ValueError(f'backup={self.backup} is for mode="sync": otherwise each push counts. Leave it out.')
        if self.mode == "sync" and (self.staleness is not None or self.delay_compensation != "off"):
            raise ValueError(
                'mode="sync" has no old gradients: leave staleness and delay_compensation out, or choose mode="async".'
            )
        return self


class CheckpointConfig(Section):
    """The `[checkpoint]` table."""

    every_epochs: int = Field(default=1, ge=0)
    """Epochs between checkpoints; 0: none at epochs' ends."""
    every_steps: int = Field(default=0, ge=0)
    """Steps between checkpoints; 0: none within epochs."""
    keep: int = Field(default=3, ge=1)
    """How many of the newest are kept."""
    resume: Literal["auto", "never"] = "auto"
    """auto: go on from the newest checkpoint in the run's folder that is whole; never: refuse a folder that has any."""
    asynchronous: bool = True
    """Write in the background; the loop waits only for the copy in memory."""
    on_failure: Literal["continue", "stop"] = "continue"
    """A checkpoint that cannot be written, e.g. to a full disk: train on and try the next, or end the run."""


class FaultsConfig(Section):
    """The `[faults]` table."""

    on_nan: Literal["stop", "skip", "ignore"] = "stop"
    """A loss or gradient that is not finite: end the run before weights are touched, leave the step out on all ranks
    and count it, or let it reach the weights."""
    timeout_s: float = Field(default=300.0, gt=0.0)
    """Longest an exchange may take before the rank that waits gives up."""
    heartbeat_timeout_s: float = Field(default=20.0, gt=0.0)
    """A rank not heard of for so long is taken for dead, and the others end. Each gives a sign of life every second, or
    every quarter of this time if that is shorter."""
    on_server_loss: Literal["restore", "stop"] = "restore"
    """A parameter server that is lost: go on with its slice from the last checkpoint, or end the run."""


class ReportConfig(Section):
    """The `[report]` table."""

    log_every: int = Field(default=10, ge=1)
    """Steps between two rows of metrics.csv."""
    progress: bool = True
    """Say how far an epoch is: a bar on a terminal, in a log a line every ten seconds at most."""
    tensorboard: bool = True
    """Write TensorBoard files too, where it is installed."""
    sample_ids: bool = False
    """Write which samples each rank took in each step to samples-rank<R>.csv."""


class RunConfig(Section):
    """The top of the TOML file."""

    out: str = "runs/first"
    """Folder of the run: config.toml, metrics.csv, checkpoints/, report.html. All ranks must see the same one."""
    epochs: int = Field(default=10, ge=1)
    """How many passes over the training images."""
    max_steps: int | None = Field(default=None, ge=1)
    """End after so many steps even within an epoch; left out: epochs decide."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """What weights, dropout, order and augmentation are drawn from."""
    device: Annotated[
        str, Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$"), told("must be 'auto', 'cpu', 'cuda', or 'cuda:0' and so on")
    ] = "auto"
    """auto: this rank's CUDA device where there is one, else the CPU; cpu; cuda; or cuda:N for a single rank."""
    deterministic: bool = False
    """Ask torch for deterministic kernels on CUDA, at a price; on the CPU runs repeat to the last bit anyway."""
    data: DataConfig
    """Images."""
    model: ModelConfig = ModelConfig()
    """The network."""
    optim: OptimConfig = OptimConfig()
    """The optimizer."""
    schedule: ScheduleConfig = ScheduleConfig()
    """The learning rate over time."""
    ema: EmaConfig = EmaConfig()
    """The moving average of the weights."""
    sync: SyncConfig = SyncConfig()
    """How ranks agree."""
    parallel: ParallelConfig = ParallelConfig()
    """Layers that are split among ranks."""
    servers: ServersConfig = ServersConfig()
    """Training through parameter servers."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    faults: FaultsConfig = FaultsConfig()
    """What to do when something breaks."""
    report: ReportConfig = ReportConfig()
    """What is written down."""

    @model_validator(mode="after")
    def _suits(self) -> Self:
        if self.schedule.name == "plateau" and not self.data.evaluates:
            raise ValueError(
                'schedule.name="plateau" looks at the evaluation\'s loss, and nothing is evaluated. '
                "Give data.eval_source, data.eval_split or data.eval_fraction."
            )
        if self.servers.mode != "off":
            self._suits_servers()
        return self

    def _suits_servers(self) -> None:
        """Refuse what has no meaning where servers hold the weights."""
        refused = {
            "sync.strategy": self.sync.strategy != "ddp",
            "sync.codec (it is servers.codec)": self.sync.codec != "fp32",
            "parallel.model": self.parallel.model > 1,
            "ema.decay": self.ema.decay is not None,
            "optim.accumulate (it is servers.push_every)": self.optim.accumulate > 1,
            "optim.amp": self.optim.amp != "off",
            "model.channels_last": self.model.channels_last,
            "model.compile": self.model.compile,
            "model.sync_batchnorm": self.model.sync_batchnorm,
            'data.shuffle="sticky"': self.data.shuffle == "sticky",
            "device": self.device not in ("auto", "cpu"),
            "report.sample_ids (the order log has them)": self.report.sample_ids,
        }
        found = [name for name, is_set in refused.items() if is_set]
        if found:
            raise ValueError(
                f'servers.mode="{self.servers.mode}" does not go with {", ".join(found)}. Leave that out, or '
                'servers.mode="off" to train by ranks.'
            )
