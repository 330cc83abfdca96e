# %% [markdown]
# # Your torchvision recipe
#
# A `Compose` of torchvision becomes a recipe. Below, both augment the same photographs, and you can compare them. This
# notebook needs torchvision.

# %%
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

from augpipe import Augment, Recipe, importers
from augpipe.datasets.synthetic.generate import generate

FOLDER = Path("photos")
if not FOLDER.exists():
    generate(FOLDER, num=6, classes=3)
files = sorted(FOLDER.glob("*/*.jpg"))[:3]
photographs = [Image.open(file).convert("RGB") for file in files]

# %% [markdown]
# ## The recipe, imported
#
# `exact` means measured to be within one level in the mean. `near` has a note that says what differs.

# %%
compose = v2.Compose(
    [
        v2.ToImage(),
        v2.RandomResizedCrop(160, scale=(0.3, 1.0), antialias=True),
        v2.RandomHorizontalFlip(),
        v2.RandomRotation(15, interpolation=v2.InterpolationMode.BILINEAR),
        v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
)
recipe = Recipe.from_torchvision(compose)
print(importers.from_torchvision(compose).table().text())

# %% [markdown]
# ## Next to each other
#
# Each row is one photograph: four versions by torchvision, then four by augpipe. The draws differ, since each library
# has its own random numbers. The kind of image is the same.


# %%
def pixels(image):
    """Normalised (3, H, W) back to (H, W, 3) levels."""
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    return ((torch.as_tensor(image) * std + mean).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()


torch.manual_seed(0)
augment = Augment(recipe, seed=0)
rows = []
for photograph in photographs:
    theirs = [pixels(compose(photograph)) for _ in range(4)]
    ours = [pixels(augment(photograph)) for _ in range(4)]
    gap = np.full((160, 16, 3), 255, np.uint8)
    rows.append(np.hstack([*theirs, gap, *ours]))
Image.fromarray(np.vstack(rows))

# %% [markdown]
# ![Torchvision's images on the left, augpipe's on the right](../images/from-torchvision.jpg)
#
# ## The same pixels
#
# A recipe without random ops shows how much the pixels of the two differ: less than one of 256 levels.

# %%
plain = v2.Compose([v2.ToImage(), v2.Resize(180, antialias=True), v2.CenterCrop(160), *compose.transforms[-2:]])
augment = Augment(Recipe.from_torchvision(plain), seed=0)
for photograph, file in zip(photographs, files, strict=True):
    theirs, ours = pixels(plain(photograph)), pixels(augment(photograph))
    difference = np.abs(theirs.astype(int) - ours.astype(int))
    print(f"{file.name}: {difference.mean():.2f} levels in the mean, {difference.max()} at most")
