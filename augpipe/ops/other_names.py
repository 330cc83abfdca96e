"""What torchvision, albumentations, timm and kornia call their transforms -> what to write here."""

_CUSTOM = "ops.Custom(my_step), which calls a function of yours"
_NOTHING = "nothing: batches are tensors of the dtype and layout that the Loader is asked for"
_FRAME = "ops.Rotate(), ops.Translate(), ops.Zoom() or ops.Shear()"
_POLICY = "recipes.{0}(224), or *policies.{0}() among ops of your own"

ANSWERS = {
    # crops and sizes
    **dict.fromkeys(
        ("crop", "cropfromborders"),
        "ops.RandomCrop(size=224), ops.CenterCrop(size=224) or ops.RandomResizedCrop(size=224)",
    ),
    "resizedcropandinterpolation": "ops.RandomResizedCrop(size=224)",
    "sizedcrop": "ops.RandomResizedCrop(size=224, height_px=[180, 224])",
    "ioucrop": "ops.RandomResizedCrop(size=224, keep_objects=ops.KeepObjects(rule='iou'))",
    **dict.fromkeys(
        ("bboxsaferandomcrop", "sizedbboxsafecrop", "bboxsafecrop"),
        "ops.RandomResizedCrop(size=224, keep_objects=ops.KeepObjects(rule='all', fallback='whole'))",
    ),
    "atleastonebboxrandomcrop": "ops.RandomCrop(size=224, keep_objects=ops.KeepObjects(rule='whole'))",
    **dict.fromkeys(
        ("cropnonemptymaskifexists", "cropnearbbox"), "ops.RandomCrop(size=224, keep_objects=ops.KeepObjects())"
    ),
    **dict.fromkeys(
        ("fivecrop", "tencrop"), "a View for each crop in Recipe(views=[...]); augpipe evaluate RUN --crops 10 has ten"
    ),
    **dict.fromkeys(("scale", "scalejitter"), "ops.RandomResize(factor=(0.5, 2.0)), and a RandomCrop behind it"),
    **dict.fromkeys(("rescale", "smallestmaxsize", "shortsize"), "ops.ResizeShortest(size=256)"),
    "shortestsize": "ops.OneCrop(chains=[[ops.ResizeShortest(size=224)], [ops.ResizeShortest(size=256)]])",
    "fixedsizecrop": "ops.RandomCrop(size=224, pad_if_needed=True)",
    **dict.fromkeys(("longestmaxsize", "longsize", "resizekeepratio"), "ops.ResizeLongest(size=256)"),
    **dict.fromkeys(("padifneeded", "padto", "cropandpad"), "ops.Pad(size=224) or ops.Pad(px=4)"),
    # geometry
    **dict.fromkeys(("horizontalflip", "hflip", "fliplr", "iaafliplr", "mirror"), "ops.Flip()"),
    **dict.fromkeys(("verticalflip", "vflip", "flipud", "iaaflipud"), 'ops.Flip(direction="vertical")'),
    "rotation": "ops.Rotate(max_deg=15, step=None)",
    "saferotate": 'ops.Rotate(max_deg=15, step=None, fit_frame="up")',
    **dict.fromkeys(("rotate90", "rotation90", "rot90", "d4", "squaresymmetry"), "ops.QuarterTurn()"),
    **dict.fromkeys(
        ("affine", "iaaaffine", "shiftscalerotate", "translatex", "translatey", "shearx", "sheary"), _FRAME
    ),
    "fisheye": 'ops.OpticalDistortion(mode="fisheye")',
    "barrel": "ops.LensDistortion()",
    **dict.fromkeys(("elastic", "gridelasticdeform"), "ops.ElasticTransform()"),
    **dict.fromkeys(
        ("piecewiseaffine", "iaapiecewiseaffine", "thinplate", "thinplatespline"),
        "ops.ElasticTransform() or ops.GridDistortion()",
    ),
    "sanitizeboundingboxes": "nothing: TargetOptions(min_area=1) drops objects of which too little is shown",
    # colours and levels
    **dict.fromkeys(
        ("colorjiggle", "photometricdistort"), "ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)"
    ),
    **dict.fromkeys(("illumination", "plasmabrightnesscontrast"), "ops.BrightnessContrast() or ops.Gamma()"),
    "plasmashadow": "ops.Shadow()",
    "chromaticaberration": "ops.ColorCast()",
    "xymasking": "ops.CoarseDropout() or ops.GridDropout()",
    "hsv": "ops.HueSaturationValue()",
    "adjustsharpness": "ops.Sharpness()",
    **dict.fromkeys(("rgbshift", "planckianjitter", "whitebalance"), "ops.ColorCast(), or ops.Lighting()"),
    **dict.fromkeys(("fancypca", "pcajitter"), "ops.Lighting()"),
    **dict.fromkeys(("togray", "gray"), "ops.Grayscale()"),
    "tosepia": "ops.Sepia()",
    **dict.fromkeys(("invertimg", "negative"), "ops.Invert()"),
    **dict.fromkeys(("channelpermutation", "rgbpermutation"), "ops.ChannelShuffle()"),
    "histogramequalization": "ops.Equalize()",
    "adjustgamma": "ops.Gamma()",
    # blur, noise, rectangles
    **dict.fromkeys(("defocus", "glassblur", "advancedblur", "zoomblur"), "ops.GaussianBlur()"),
    **dict.fromkeys(("gaussnoise", "gaussiannoise", "additivenoise", "shot", "shotnoise"), "ops.Noise()"),
    **dict.fromkeys(
        ("saltandpepper", "saltandpeppernoise"),
        "ops.PixelDropout(), and another one with fill=255 for the white pixels",
    ),
    "iaaadditivegaussiannoise": "ops.Noise(per_channel=False)",
    **dict.fromkeys(("erasing", "mask"), "ops.Erase()"),
    **dict.fromkeys(("cutout", "maskdropout"), "ops.CoarseDropout()"),
    "gridmask": "ops.GridDropout()",
    "unsharpmask": "ops.Sharpen(), or ops.Sharpness(factor=(1.0, 2.0))",
    "iaasharpen": "ops.Sharpen()",
    "iaaemboss": "ops.Emboss()",
    **dict.fromkeys(("imagecompression", "jpegcompression", "jpeg"), "ops.JpegCompression()"),
    **dict.fromkeys(
        ("multiplicative", "multiplicativenoise"),
        "ops.BrightnessContrast(brightness=(0, 0)), or ops.Noise(speckle=...)",
    ),
    "haze": "ops.Fog()",
    **dict.fromkeys(("rain", "snow", "sunflare", "gravel"), f"{_CUSTOM}: no op here does it"),
    # what holds others
    **dict.fromkeys(
        ("compose", "replaycompose", "sequential", "augmentationsequential", "imagesequential"),
        "Recipe(ops=[ops.Flip(), ...])",
    ),
    **dict.fromkeys(("choice", "oneorother"), "ops.OneOf(ops=[...])"),
    "apply": "ops.AllOf(ops=[...], p=0.5)",
    "order": "ops.AllOf(ops=[...]), which keeps the order of the list",
    "noop": "ops.Identity()",
    "lambda": _CUSTOM,
    # policies and mixing
    "randaugment": _POLICY.format("rand_augment"),
    "autoaugment": _POLICY.format("auto_augment"),
    **dict.fromkeys(("trivialaugment", "trivialaugmentwide"), _POLICY.format("trivial_augment_wide")),
    "augmix": f"{_POLICY.format('trivial_augment_wide')}: no op here blends several versions of an image",
    "threeaugment": _POLICY.format("three_augment"),
    **dict.fromkeys(("mixupv2", "mixup"), "mixing=[ops.MixUp()] of the Recipe"),
    **dict.fromkeys(("cutmixv2", "cutmix"), "mixing=[ops.CutMix()] of the Recipe"),
    **dict.fromkeys(("copypaste", "copyandpaste", "simplecopypaste"), "mixing=[ops.CopyPaste()] of the Recipe"),
    "mosaic": "mosaic=ops.Mosaic() of the Recipe",
    "createtransform": "recipes.from_timm(input_size=224, ...)",
    # what changes the container alone
    **dict.fromkeys(
        (
            *("totensor", "totensorv2", "toimage", "topilimage", "piltotensor", "topuretensor", "todtype", "tofloat"),
            *("convertimagedtype", "rgb", "fromfloat", "clampboundingboxes", "convertboundingboxformat"),
            *("clampkeypoints", "sanitizekeypoints", "setclampingmode"),
        ),
        _NOTHING,
    ),
}
"""Names as `suggest.plain` gives them, without "random" in front."""
