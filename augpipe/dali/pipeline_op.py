"""The recipe as an operator of a DALI pipeline that one owns already."""

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from augpipe.dali.samples import SampleNumbers
from augpipe.planning.output_format import DTypeLike, Framework, OutputFormat, dtype_name
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.refusals import check_recipe, refuse_keeping, refuse_mixing
from augpipe.validation.arguments import as_epoch, as_num_threads, as_seed, check_choice

if TYPE_CHECKING:
    from nvidia.dali import Pipeline
    from nvidia.dali.data_node import DataNode

DaliDType = Literal["float32", "float16", "uint8"]
DaliLayout = Literal["NCHW", "NHWC"]

_SAMPLE_LAYOUTS: dict[str, str] = {"NCHW": "CHW", "NHWC": "HWC"}


def augment(
    images: "DataNode",
    recipe: Recipe,
    *,
    sample_ids: "DataNode | None" = None,
    epoch: "int | DataNode" = 0,
    seed: int = 0,
    dtype: DTypeLike = "float32",
    layout: DaliLayout = "NCHW",
    num_threads: int | None = None,
) -> "DataNode | tuple[DataNode, ...]":
    """Augment decoded images inside a pipeline definition.

    For the same seed, epoch, sample id and size the plan is that of `Augment` and `Loader`, and on the CPU the pixels
    are theirs bit by bit. The result is on the device of `images`.

    Args:
        images: HWC uint8, RGB (or gray, or with a fourth channel that is dropped), of any size in a batch, on "cpu" or
            "gpu"; they are only read. As `fn.decoders.image` gives them.
        recipe: what is done to each image.
        sample_ids: one whole number in 0..2^32 - 1 a sample, on the CPU, of any integer type: the same id, epoch and
            seed give the same plan. None counts the samples that this operator has seen, from 0 on and through all
            epochs: no two are treated alike, but the ids then depend on the order, every shard counts alike (give each
            a seed of its own), and a resumed run starts from 0.
        epoch: 0..2^32 - 1, of all samples; or one whole number a sample, on the CPU.
        seed: 0..2^64 - 1.
        dtype: "float32", "float16" or "uint8" (recipes without Normalize), or types of torch and numpy. DALI has no
            bfloat16.
        layout: "NCHW" gives samples (3, H, W) with the layout "CHW", "NHWC" samples (H, W, 3) with "HWC".
        num_threads: threads on the CPU, which run during a call alone; None for as many as the pipeline has.

    Returns:
        The augmented images; a tuple, one entry a view, where the recipe has several views. Without a crop each
        sample keeps its own size.

    Raises:
        ValueError: while the graph is defined, an argument is not as above. While the pipeline runs DALI wraps the
            message, which names the sample, in a RuntimeError of its own.
        RuntimeError: the images are on the GPU and CUDA cannot be used from torch.
    """
    pipeline = _current_pipeline()
    check_recipe(recipe)
    refuse_mixing(recipe, "an operator of DALI's")
    refuse_keeping(recipe, "to an operator of DALI's")
    form = _form(recipe, dtype, layout, "numpy")
    seed = as_seed(seed)
    _check_node("images", images, "the decoded photographs: fn.decoders.image(...)")
    given = []
    if sample_ids is not None:
        given.append(_on_cpu("sample_ids", sample_ids, "one whole number a sample"))
    fixed_epoch = None if _is_node(epoch) else as_epoch(epoch)
    if fixed_epoch is None:
        given.append(_on_cpu("epoch", epoch, "a whole number, or one a sample"))
    threads = as_num_threads(num_threads, pipeline.num_threads or 1)  # DALI runs no pipeline without
    numbers = SampleNumbers(has_ids=sample_ids is not None, epoch=fixed_epoch)
    num_views = len(recipe.all_views)
    outputs: dict[str, Any] = {"num_outputs": num_views, "output_layouts": [_SAMPLE_LAYOUTS[layout]] * num_views}
    if images.device == "gpu":
        form = _form(recipe, dtype, layout, "torch")
        results = _on_device(images, given, recipe, seed, form, numbers, pipeline, outputs)
    else:
        from nvidia.dali import fn

        from augpipe.dali.host_op import HostAugment

        function = HostAugment(recipe, seed, form, numbers, threads)
        results = fn.python_function(images, *given, function=function, batch_processing=True, **outputs)
    return results if num_views == 1 else tuple(results)


def _on_device(
    images: "DataNode",
    given: "list[DataNode]",
    recipe: Recipe,
    seed: int,
    form: OutputFormat,
    numbers: SampleNumbers,
    pipeline: "Pipeline",
    outputs: dict[str, Any],
) -> Any:
    from nvidia.dali import fn

    from augpipe.cuda.cuda_render import DeviceRenderer
    from augpipe.cuda.device_name import require_device
    from augpipe.dali.device_op import DeviceAugment, dali_stream

    device = require_device("cuda" if pipeline.device_id is None else f"cuda:{pipeline.device_id}")
    renderer = DeviceRenderer(device, recipe, form)
    function = DeviceAugment(recipe, seed, numbers, renderer, partial(dali_stream, device))
    noted = [fn.python_function(*given, function=function.note, batch_processing=True).gpu()] if given else []
    return fn.dl_tensor_python_function(
        images,
        *noted,
        function=function,
        device="gpu",
        batch_processing=True,
        synchronize_stream=False,  # what it queues is on DALI's stream
        **outputs,
    )


def _current_pipeline() -> "Pipeline":
    from nvidia.dali import Pipeline

    pipeline: Pipeline | None = Pipeline.current()
    if pipeline is None:
        raise ValueError(
            "augpipe.dali.augment is an operator of a DALI graph, and no pipeline is being defined. "
            "Call it in a function under @pipeline_def; augpipe.Augment takes arrays and tensors."
        )
    return pipeline


def _form(recipe: Recipe, dtype: Any, layout: Any, framework: Framework) -> OutputFormat:
    dtype = dtype_name(dtype)
    if dtype == "bfloat16":
        raise ValueError(
            'dtype="bfloat16" is not a type of DALI. Choose "float16", or convert the tensors that the pipeline gives.'
        )
    check_choice("dtype", dtype, get_args(DaliDType))
    if layout == "channels_last":
        raise ValueError('layout="channels_last" is a torch memory format, which DALI does not have. Choose "NHWC".')
    check_choice("layout", layout, get_args(DaliLayout))
    if recipe.channels != 3:
        raise ValueError(
            "augpipe.dali.augment gives three channels, and the recipe asks for one. Take channels=1 out of it, "
            "and put fn.color_space_conversion behind, or use a Loader."
        )
    form = OutputFormat(dtype=dtype, layout=layout, framework=framework)
    form.check(recipe)
    return form


def _is_node(thing: Any) -> bool:
    from nvidia.dali.data_node import DataNode

    return isinstance(thing, DataNode)


def _check_node(name: str, node: Any, wanted: str) -> None:
    if not _is_node(node):
        raise ValueError(f"{name} is a {type(node).__name__}, and must be a DataNode. Give {wanted}.")


def _on_cpu(name: str, node: Any, wanted: str) -> "DataNode":
    _check_node(name, node, f"a CPU operator's output, {wanted}")
    if node.device != "cpu":
        raise ValueError(
            f"{name} lies on the {node.device}, and the plan is drawn on the host. Give it as it was before .gpu()."
        )
    return node
