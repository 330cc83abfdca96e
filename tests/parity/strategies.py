"""Hypothesis strategies for ops and recipes, over every field."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from augpipe import Recipe, ops
from augpipe.ops.op import KINDS, keyed
from augpipe.ops.view_passes import MOST_PASSES, in_one_pass, passes_of
from tests.parity.field_strategies import PROBABILITIES, of_kind, ranges

BORDERS = ("context", "reflect", "edge", "constant", "reflect_101", "wrap")


def _built(kind: type[ops.Op], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[ops.Op]:
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: kind(**values))


@st.composite
def _stepped(draw: st.DrawFn, kind: type[ops.Op], name: str, limit: float) -> ops.Op:
    """An op with a largest value that is a whole number of steps, or without steps."""
    step = draw(st.none() | st.sampled_from([0.25, 0.5, 1.0, 2.5]))
    most = draw(st.floats(0.01, limit)) if step is None else step * draw(st.integers(1, int(limit / step)))
    return kind(**{name: most, "step": step, "p": draw(PROBABILITIES)})


def _fits(op_fields: dict[str, Any]) -> dict[str, Any]:
    size = op_fields["size"]
    least = max(size) if isinstance(size, tuple) else size
    return op_fields | {"scales": tuple(least + extra for extra in op_fields["scales"])}


SIZES = st.one_of(st.integers(1, 33), st.tuples(st.integers(1, 35), st.integers(1, 50)))
FLIPS = _built(ops.Flip, direction=st.sampled_from(["horizontal", "vertical"]), p=PROBABILITIES)
ROTATIONS = st.one_of(
    _stepped(ops.Rotate, "max_deg", 400.0),
    st.builds(ops.Rotate, max_deg=ranges(-400, 400), step=st.none(), p=PROBABILITIES),
    st.builds(ops.Rotate, max_deg=ranges(-400, 400), step=st.none(), fit_frame=st.sampled_from(["up", "down"])),
    _built(
        ops.QuarterTurn,
        turns=st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, unique=True).map(tuple),
        p=PROBABILITIES,
    ),
    _built(ops.Transpose, p=PROBABILITIES),
)
"""Turns; none that swaps an image's sides, as no crop may stand next to it."""
STRETCHES = st.one_of(
    _built(ops.Stretch, horizontal=ranges(0.5, 2.5), vertical=ranges(0.5, 2.5), p=PROBABILITIES),
    st.just(ops.Stretch(horizontal=(0.5, 1.5), vertical=(1.0, 1.25), step=0.25)),
    _built(ops.Zoom, factor=ranges(0.5, 2.5), p=PROBABILITIES),
    st.just(ops.Zoom(factor=(0.5, 1.5), step=0.25)),
)
SHEARS = st.one_of(
    _built(
        ops.Shear,
        horizontal_deg=ranges(-45, 45),
        vertical_deg=ranges(-30, 30),
        about=st.sampled_from(["centre", "corner"]),
        p=PROBABILITIES,
    ),
    st.just(ops.Shear(horizontal_deg=(-20, 20), vertical_deg=(0, 5), step=2.5)),
    st.just(ops.Shear(horizontal_deg=(-20, 5), vertical_deg=(-5, 20), order="y_first", opposite=True)),
)
TRANSLATIONS = st.one_of(
    _built(ops.Translate, horizontal=ranges(-0.8, 0.8), vertical=ranges(-0.8, 0.8), p=PROBABILITIES),
    st.builds(ops.Translate, horizontal=ranges(-30, 30), vertical=ranges(-30, 30), unit=st.just("px"), p=PROBABILITIES),
    st.just(ops.Translate(horizontal=(-9, 9), vertical=(0, 3), unit="px", step=1)),
)
AFFINE = st.one_of(FLIPS, ROTATIONS, STRETCHES, SHEARS, TRANSLATIONS)
LENSES = st.one_of(
    _built(
        ops.LensDistortion,
        kinds=st.lists(st.sampled_from(["barrel", "pincushion", "stretch_vertical"]), min_size=1, unique=True).map(
            tuple
        ),
        max_strength=st.floats(0.01, 0.33),
        degrees=st.none() | st.integers(1, 100),
        p=PROBABILITIES,
    ),
    _built(ops.OpticalDistortion, k=ranges(-0.4, 0.4), mode=st.sampled_from(["camera", "fisheye"]), p=PROBABILITIES),
    st.builds(
        ops.GridDistortion,
        num_steps=st.integers(1, 10),
        distort_limit=ranges(-0.95, 1.0),
        normalized=st.booleans(),
        p=PROBABILITIES,
    ),
    _built(
        ops.GridDistortion,
        num_steps=st.integers(1, 9),
        distort_limit=ranges(-0.95, 1.0),
        normalized=st.booleans(),
        cells=st.sampled_from(["whole_px", "to_edge"]),
        p=PROBABILITIES,
    ),
    _built(
        ops.ElasticTransform,
        alpha=st.floats(0.0, 200.0),
        sigma=st.floats(0.5, 60.0),
        affine_px=st.floats(0.0, 60.0),
        same=st.booleans(),
        p=PROBABILITIES,
    ),
    # all of them together: with the default of k1, which is wider, some would fold the image
    st.just(ops.BrownConrady()),
    st.builds(
        ops.BrownConrady,
        k1=ranges(-0.15, 0.3),
        k2=ranges(-0.03, 0.1),
        k3=ranges(-0.01, 0.05),
        p1=ranges(-0.03, 0.03),
        p2=ranges(-0.03, 0.03),
        steps=st.none() | st.integers(2, 9),
        p=PROBABILITIES,
    ),
)
PERSPECTIVES = _built(
    ops.Perspective,
    distortion=st.floats(0.01, 0.7),
    corners=st.sampled_from(["edges", "centres"]),
    p=PROBABILITIES,
)
BLURS = st.one_of(
    _built(ops.Blur, sigma_px=ranges(0.0, 2.0), p=PROBABILITIES),
    st.just(ops.Blur(sigma_px=(0.0, 1.0), step=0.25)),
)
VIGNETTES = st.one_of(
    st.builds(
        ops.Vignette,
        radii=ranges(0.0, 0.99),
        strengths=ranges(0.0, 1.0),
        radius_step=st.none(),
        strength_step=st.none(),
        p=PROBABILITIES,
    ),
    _built(ops.Vignette, p=PROBABILITIES),
)
CASTS = _stepped(ops.ColorCast, "max_shift", 255.0)
CROPS = st.one_of(
    st.builds(
        lambda fields: ops.MultiResolutionCrop(**_fits(fields)),
        st.fixed_dictionaries(
            {
                "size": SIZES,
                "scales": st.lists(st.integers(0, 90), min_size=1, max_size=3).map(tuple),
                "step": st.sampled_from([1, None]),
                "p": PROBABILITIES,
            }
        ),
    ),
    st.builds(
        lambda size, extra: ops.CenterCrop(size=size, scale=(max(size) if isinstance(size, tuple) else size) + extra),
        SIZES,
        st.integers(0, 90),
    ),
    st.builds(
        lambda limits, **fields: ops.RandomResizedCrop(**limits, **fields),
        st.one_of(
            st.fixed_dictionaries({"scale": ranges(0.01, 1.0)}),
            st.fixed_dictionaries({"height_px": st.tuples(st.integers(1, 30), st.integers(30, 90))}),
        ),
        size=SIZES,
        ratio=ranges(0.2, 5.0),
        step=st.sampled_from([1, None]),
        p=PROBABILITIES,
    ),
)
NORMALIZES = st.one_of(
    st.just(ops.Normalize()),
    st.builds(ops.Normalize, mean=st.tuples(*[st.floats(-1, 1)] * 3), std=st.tuples(*[st.floats(0.01, 1)] * 3)),
)
ERASES = _built(
    ops.Erase,
    scale=ranges(0.02, 0.9),
    fill=st.sampled_from(["noise", "mean", (1.0, 99.5, 250.0)]),
    p=PROBABILITIES,
)
POSITIONS = st.sampled_from(["center", "top_left", "top_right", "bottom_left", "bottom_right"])
AMOUNTS = st.integers(0, 9)
RESIZES = st.one_of(
    _built(ops.Resize, size=SIZES),
    _built(ops.ResizeShortest, size=st.integers(1, 40), max_size=st.none() | st.integers(1, 60)),
    _built(ops.ResizeLongest, size=st.integers(1, 60)),
    st.builds(
        ops.Pad,
        px=st.one_of(AMOUNTS, st.tuples(AMOUNTS, AMOUNTS), st.tuples(*[AMOUNTS] * 4)),
        size=st.none() | SIZES,
        multiple=st.none() | st.integers(1, 16),
        position=POSITIONS,
        border=st.just("reflect"),
    ),
    st.builds(ops.Letterbox, size=SIZES, enlarge=st.booleans(), position=POSITIONS, border=st.just("reflect")),
    st.builds(ops.ZoomOut, factor=ranges(1.0, 4.0), border=st.just("reflect"), p=PROBABILITIES),
    st.builds(
        ops.RandomCrop,
        size=SIZES,
        padding=AMOUNTS,
        pad_if_needed=st.just(True),
        border=st.just("reflect"),
        p=PROBABILITIES,
    ),
)
"""What may stand before a crop; where one pads, all of a recipe have one border."""
DRAWN_SIZES = st.one_of(
    st.builds(ops.RandomResize, factor=ranges(0.3, 3.0), within=st.none() | SIZES, p=PROBABILITIES),
    st.builds(ops.RandomResize, size=st.tuples(st.integers(1, 20), st.integers(20, 60)), p=PROBABILITIES),
)


@st.composite
def one_crops(draw: st.DrawFn) -> ops.Op:
    """One of several chains that make images of one size."""
    size, maps = draw(SIZES), AFFINE | st.builds(ops.OneOf, ops=st.lists(AFFINE, min_size=1, max_size=2))
    kinds = (ops.Resize(size=size), ops.RandomResizedCrop(size=size), ops.CenterCrop(size=size, scale=50))
    chain = st.tuples(
        st.lists(RESIZES | DRAWN_SIZES, max_size=1),
        st.lists(maps, max_size=1),
        st.sampled_from(kinds),
        st.lists(maps, max_size=2),
    ).map(lambda found: [*found[0], *found[1], found[2], *found[3]])
    chains = draw(st.lists(chain, min_size=1, max_size=3))
    return ops.OneCrop(chains=chains, weights=draw(st.none() | st.just(range(1, len(chains) + 1))))


CROP_CHAINS = st.tuples(st.lists(RESIZES | DRAWN_SIZES, max_size=2), CROPS | one_crops()).map(
    lambda found: [*found[0], found[1]]
)
"""Some of them and a crop of one size."""
DROPOUTS = _built(
    ops.CoarseDropout,
    num=st.tuples(st.integers(1, 2), st.integers(2, 5)),
    height=ranges(0.0, 30.0),
    width=ranges(0.0, 30.0),
    fill=st.tuples(*[st.floats(0, 255)] * 3),
    p=PROBABILITIES,
)
BY_HAND = {
    *(
        ops.CoarseDropout,
        ops.ZoomOut,
        ops.Letterbox,
        ops.Pad,
        ops.RandomCrop,
        ops.RandomResize,
        ops.Resize,
        ops.ResizeLongest,
        ops.ResizeShortest,
    ),
    *(ops.AllOf, ops.Blur, ops.BrownConrady, ops.CenterCrop, ops.ColorCast, ops.Erase, ops.Flip, ops.Identity),
    *(
        ops.LensDistortion,
        ops.MultiResolutionCrop,
        ops.Normalize,
        ops.OneCrop,
        ops.OneOf,
        ops.Perspective,
        ops.QuarterTurn,
    ),
    *(
        ops.ElasticTransform,
        ops.GridDistortion,
        ops.OpticalDistortion,
        ops.RandomResizedCrop,
        ops.Rotate,
        ops.Shear,
        ops.SomeOf,
        ops.Stretch,
        ops.Translate,
        ops.Transpose,
        ops.Vignette,
        ops.Zoom,
        ops.ZoomOut,
    ),
}
"""Ops with strategies here: their place in a view or the oracle's patience limits them. Those of all others follow from
their fields."""
COLOURS = st.one_of(ERASES, DROPOUTS, *(of_kind(kind) for kind in KINDS.values() if kind not in BY_HAND))
ANY_OP = st.one_of(AFFINE, PERSPECTIVES, BLURS, LENSES, VIGNETTES, CASTS, CROPS, one_crops(), NORMALIZES)


@st.composite
def chains(draw: st.DrawFn, normalised: bool = True, projective: bool = True) -> tuple[ops.Op, ...]:
    """Ops that one view may hold, in any order that it takes."""
    chosen = draw(st.lists(AFFINE, max_size=3))
    chosen += draw(st.just([]) | CROP_CHAINS | st.lists(RESIZES, max_size=2))
    singles = [LENSES, BLURS, VIGNETTES, CASTS]
    for single in singles + [NORMALIZES] * normalised + [PERSPECTIVES] * projective:
        chosen += draw(st.lists(single, max_size=1))
    ordered = draw(st.permutations(chosen))
    bending = [i for i, op in enumerate(ordered) if op.is_lens or op.is_projective]
    if len(bending) == 2 and ordered[bending[1]].is_lens:
        ordered[bending[0]], ordered[bending[1]] = ordered[bending[1]], ordered[bending[0]]
    return in_few_passes(padded_first(ordered))


def in_few_passes(chain: tuple[ops.Op, ...]) -> tuple[ops.Op, ...]:
    """The chain, with geometry before all steps if it might else take more passes than a view may."""
    most = passes_of(keyed(chain), ("constant", (9.0, 8.0, 7.0)), "bilinear")
    return chain if len(most) <= MOST_PASSES else in_one_pass(chain)


def padded_first(chain: Sequence[ops.Op]) -> tuple[ops.Op, ...]:
    """Ops of a view, with its crops in front where any of them pads, and one padded crop before those that cut; what
    draws a size comes before the other crops."""
    if not any(op.beyond for op in chain):
        crops = iter(sorted((op for op in chain if op.is_crop), key=lambda op: not op.draws_size))
        return tuple(next(crops) if op.is_crop else op for op in chain)
    crops = sorted((op for op in chain if op.is_crop), key=lambda op: (op.cuts, op.beyond is None))
    padded = [op for op in crops if op.cuts and op.beyond]
    return tuple(op for op in crops if op not in padded[1:]) + tuple(op for op in chain if not op.is_crop)


def _groups(members: st.SearchStrategy[ops.Op]) -> st.SearchStrategy[ops.Op]:
    held = st.lists(members, min_size=1, max_size=3)
    return st.one_of(
        st.builds(ops.OneOf, ops=held, p=PROBABILITIES),
        st.builds(lambda ops_, p: ops.OneOf(ops=ops_, weights=range(1, len(ops_) + 1), p=p), held, PROBABILITIES),
        st.builds(lambda ops_, p: ops.SomeOf(ops=ops_, num=(0, len(ops_)), p=p), held, PROBABILITIES),
        st.builds(ops.AllOf, ops=held, p=PROBABILITIES),
    )


CHOICES = st.recursive(
    st.one_of(AFFINE, BLURS, VIGNETTES, CASTS, COLOURS, st.just(ops.Identity())), _groups, max_leaves=6
)
"""An op of an image that is no crop, lens, perspective nor Normalize, or a group of such."""


@st.composite
def cropped_views(draw: st.DrawFn, normalised: bool = True) -> tuple[ops.Op, ...]:
    """Any ops that a view of a batch may hold, a crop among them."""
    chain = [op for op in draw(chains(normalised)) if not op.is_crop]
    for op in draw(st.lists(CHOICES, min_size=1, max_size=4)):
        if op.op not in {held.op for held in chain if held.op in ("color_cast", "vignette")}:
            chain.insert(draw(st.integers(0, len(chain))), op)
    for op in draw(CROP_CHAINS):
        chain.insert(draw(st.integers(0, len(chain))), op)
    return in_few_passes(padded_first(chain))


@st.composite
def borders_of(draw: st.DrawFn, *chains: tuple[ops.Op, ...], borders: tuple[str, ...] = BORDERS) -> dict[str, Any]:
    """The border and the fill of a recipe with such views: none of its own where an op has one."""
    if any(op.beyond for chain in chains for op in chain):
        return {}
    return {"border": draw(st.sampled_from(borders)), "fill": draw(st.tuples(*[st.floats(0, 255)] * 3))}


@st.composite
def recipes(
    draw: st.DrawFn, borders: tuple[str, ...] = BORDERS, normalised: bool = True, projective: bool = True
) -> Recipe:
    """Recipes of one view and one pass, which is what kernels and their oracles know."""
    chain = in_one_pass(draw(chains(normalised, projective)))
    blurs = any(inner.op == "blur" for op in chain for inner in op.flat)
    look = {"interpolation": "bilinear" if blurs else draw(st.sampled_from(["bilinear", "bicubic"]))}
    return Recipe(ops=chain, antialias=draw(st.booleans()), **look, **draw(borders_of(chain, borders=borders)))
