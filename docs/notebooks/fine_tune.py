# %% [markdown]
# # Fine-tune on your own folder
#
# Photographs in one folder per class, a network, a training loop, and the mistakes that are left.
#
# Set `FOLDER` to yours. Without changes the notebook draws a few photographs, so that it runs anywhere. On so few, a
# network learns almost nothing.

# %%
from pathlib import Path

import torch

from augpipe import Loader, Recipe, ops, recipes
from augpipe.datasets.synthetic.generate import generate
from augpipe.preview import draw_sheet, over_epochs
from augpipe.trainer import model
from augpipe.trainer.models.finetune import trainable
from augpipe.trainer.models.weights import load_weights

FOLDER = Path("photos")  # photos/CLASS/NAME.jpg
SIZE = 64  # 224 for real photographs
EPOCHS = 3  # 20 for real photographs
NETWORK, WEIGHTS = "small-cnn", None  # "resnet-18", and a file with its weights

if not FOLDER.exists():
    generate(FOLDER, num=60, classes=3)

# %% [markdown]
# ## A recipe
#
# What the network sees: a random crop, half of the time mirrored, in changing light. The sheet shows three photographs
# and four versions of each, with the values that were drawn.

# %%
recipe = Recipe(
    ops=[
        ops.RandomResizedCrop(size=SIZE, scale=(0.5, 1.0)),
        ops.Flip(),
        ops.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2),
        ops.Normalize(),
    ]
)
train = Loader(FOLDER, recipe, batch_size=12, seed=1, split="train", holdout=0.2)
draw_sheet(over_epochs(train.source, recipe, rows=3, cols=4))

# %% [markdown]
# A fifth of the photographs is held out: the network is never trained on them. For the test they are resized and
# cropped at the centre.

# %%
classes = train.source.classes
whole = recipes.evaluation(size=SIZE)
test = Loader(FOLDER, whole, batch_size=12, shuffle=False, split="val", holdout=0.2, classes=classes)
print(f"{len(train.source)} to train on, {len(test.source)} to test on: {', '.join(classes)}")

# %% [markdown]
# ## A network
#
# With a file of weights, only the last layer starts from scratch, and only it trains. `"resnet-18"` takes torchvision's
# weights: `torch.save(torchvision.models.resnet18(weights="DEFAULT").state_dict(), "resnet18.pth")`. When the last
# layer has learned your classes, call `trainable(network, "all")` and go on with a tenth of the learning rate.

# %%
torch.manual_seed(1)
network = model(NETWORK, num_classes=len(classes))
if WEIGHTS:
    print(load_weights(network, WEIGHTS, new_head=True))
    print(trainable(network, "last"))

# %% [markdown]
# ## Training


# %%
def num_correct(loader):
    network.eval()
    with torch.no_grad():
        return sum((network(images).argmax(1) == labels).sum().item() for images, labels in loader)


optimizer = torch.optim.AdamW([weight for weight in network.parameters() if weight.requires_grad], lr=1e-3)
for epoch in range(EPOCHS):
    train.set_epoch(epoch)  # another order and other draws
    network.train()
    for images, labels in train:
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {num_correct(test) / len(test.source):.0%} of the held-out photographs are correct")

# %% [markdown]
# ## What is still wrong
#
# The names of the first few mistakes. Look at them: it may be the label that is wrong, not the network.

# %%
network.eval()
wrong = []
for batch in test:
    with torch.no_grad():
        found = network(batch.images).argmax(1)
    for sample_id, label, guess in zip(batch.sample_ids.tolist(), batch.labels.tolist(), found.tolist(), strict=True):
        if guess != label:
            wrong.append(f"{test.source.name(sample_id)}: {classes[guess]}, not {classes[label]}")
print("\n".join(wrong[:5]))

# %% [markdown]
# ## Keep it
#
# Keep the recipe with the weights: it says how the network's images were cropped and normalised.

# %%
torch.save(network.state_dict(), "weights.pth")
recipe.dump("recipe.toml")
