"""Magnitudes and pairs of ops copied as numbers from torchvision/transforms/autoaugment.py (0.28)."""

WIDE = {
    "ShearX": 0.99,
    "ShearY": 0.99,
    "TranslateX": 32.0,
    "TranslateY": 32.0,
    "Rotate": 135.0,
    "Brightness": 0.99,
    "Color": 0.99,
    "Contrast": 0.99,
    "Sharpness": 0.99,
}
"""TrivialAugmentWide's largest magnitude, in 31 bins from 0, of either sign."""
WIDE_BITS = [8, 8, 8, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 2, 2, 2]
"""Its bits of Posterize, bin by bin."""
RAND = {
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 150.0 / 331.0,
    "TranslateY": 150.0 / 331.0,
    "Rotate": 30.0,
    "Brightness": 0.9,
    "Color": 0.9,
    "Contrast": 0.9,
    "Sharpness": 0.9,
}
"""RandAugment's and AutoAugment's; translations as a fraction of the side."""
RAND_BITS = [8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 4, 4]
AUTO_BITS = [8, 8, 7, 7, 6, 6, 5, 5, 4, 4]
THRESHOLDS = [255.0, 246.5, 238.0, 229.5, 221.0, 212.5, 204.0, 195.5, 187.0, 178.5, 170.0, 161.5, 153.0, 144.5, 136.0]
THRESHOLDS += [127.5, 119.0, 110.5, 102.0, 93.5, 85.0, 76.5, 68.0, 59.5, 51.0, 42.5, 34.0, 25.5, 17.0, 8.5, 0.0]
"""Solarize's, bin by bin; levels of at least that are inverted."""
