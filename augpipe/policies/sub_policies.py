"""The sub-policies that AutoAugment found: two ops each, with probabilities and magnitudes (arXiv:1805.09501)."""

Step = tuple[str, float, int]
"""An op, how often it is applied, and its magnitude, 0..9 (0..10 in timm)."""
SubPolicy = tuple[Step, ...]


def _read(text: str) -> tuple[SubPolicy, ...]:
    """A sub-policy a line: `op probability magnitude, op probability magnitude`."""
    return tuple(
        tuple((name, float(p), int(magnitude)) for name, p, magnitude in (part.split() for part in line.split(",")))
        for line in text.strip().splitlines()
    )


IMAGENET = _read("""
posterize 0.4 8, rotate 0.6 9
solarize 0.6 5, auto_contrast 0.6 5
equalize 0.8 8, equalize 0.6 3
posterize 0.6 7, posterize 0.6 6
equalize 0.4 7, solarize 0.2 4
equalize 0.4 4, rotate 0.8 8
solarize 0.6 3, equalize 0.6 7
posterize 0.8 5, equalize 1.0 2
rotate 0.2 3, solarize 0.6 8
equalize 0.6 8, posterize 0.4 6
rotate 0.8 8, color 0.4 0
rotate 0.4 9, equalize 0.6 2
equalize 0.0 7, equalize 0.8 8
invert 0.6 4, equalize 1.0 8
color 0.6 4, contrast 1.0 8
rotate 0.8 8, color 1.0 2
color 0.8 8, solarize 0.8 7
sharpness 0.4 7, invert 0.6 8
shear_x 0.6 5, equalize 1.0 9
color 0.4 0, equalize 0.6 3
equalize 0.4 7, solarize 0.2 4
solarize 0.6 5, auto_contrast 0.6 5
invert 0.6 4, equalize 1.0 8
color 0.6 4, contrast 1.0 8
equalize 0.8 8, equalize 0.6 3
""")
"""For ImageNet; timm's `original`."""

CIFAR10 = _read("""
invert 0.1 7, contrast 0.2 6
rotate 0.7 2, translate_x 0.3 9
sharpness 0.8 1, sharpness 0.9 3
shear_y 0.5 8, translate_y 0.7 9
auto_contrast 0.5 8, equalize 0.9 2
shear_y 0.2 7, posterize 0.3 7
color 0.4 3, brightness 0.6 7
sharpness 0.3 9, brightness 0.7 9
equalize 0.6 5, equalize 0.5 1
contrast 0.6 7, sharpness 0.6 5
color 0.7 7, translate_x 0.5 8
equalize 0.3 7, auto_contrast 0.4 8
translate_y 0.4 3, sharpness 0.2 6
brightness 0.9 6, color 0.2 8
solarize 0.5 2, invert 0.0 3
equalize 0.2 0, auto_contrast 0.6 0
equalize 0.2 8, equalize 0.6 4
color 0.9 9, equalize 0.6 6
auto_contrast 0.8 4, solarize 0.2 8
brightness 0.1 3, color 0.7 0
solarize 0.4 5, auto_contrast 0.9 3
translate_y 0.9 9, translate_y 0.7 9
auto_contrast 0.9 2, solarize 0.8 3
equalize 0.8 8, invert 0.1 3
translate_y 0.7 9, auto_contrast 0.9 1
""")
"""For CIFAR-10."""

TIMM_V0 = _read("""
equalize 0.8 1, shear_y 0.8 4
color 0.4 9, equalize 0.6 3
color 0.4 1, rotate 0.6 8
solarize 0.8 3, equalize 0.4 7
solarize 0.4 2, solarize 0.6 2
color 0.2 0, equalize 0.8 8
equalize 0.4 8, solarize_add 0.8 3
shear_x 0.2 9, rotate 0.6 8
color 0.6 1, equalize 1.0 2
invert 0.4 9, rotate 0.6 0
equalize 1.0 9, shear_y 0.6 3
color 0.4 7, equalize 0.6 0
posterize 0.4 6, auto_contrast 0.4 7
solarize 0.6 8, color 0.6 9
solarize 0.2 4, rotate 0.8 9
rotate 1.0 7, translate_y 0.8 9
shear_x 0.0 0, solarize 0.8 4
shear_y 0.8 0, color 0.6 4
color 1.0 0, rotate 0.6 2
equalize 0.8 4, equalize 0.0 8
equalize 1.0 4, auto_contrast 0.6 2
shear_y 0.4 7, solarize_add 0.6 7
posterize 0.8 2, solarize 0.6 10
solarize 0.6 8, equalize 0.6 1
color 0.8 6, rotate 0.4 5
""")
"""timm's `v0`, of the implementation of EfficientNet for TPUs."""
