# %% [markdown]
# # Two ranks with 8-bit gradients
#
# Two processes train one network on the CPU of this machine. In each step they exchange their gradients: first as
# float32 numbers, then in 8 bits. The second run sends a quarter of the bytes, and learns the same.

# %%
import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

from augpipe.datasets.synthetic.generate import generate
from augpipe.trainer import codec

FOLDER = Path("photos")
if not FOLDER.exists():
    generate(FOLDER, num=48, classes=3)

# %% [markdown]
# ## One gradient in 8 bits
#
# A codec splits the numbers into blocks of 256, and stores each number as its share of the block's largest one. The
# error is bounded, and the bound is known.

# %%
gradient = np.random.default_rng(0).standard_normal(100_000, dtype=np.float32)
tree = codec("dynamic-tree")
payload = tree.encode(gradient)
error = np.abs(tree.decode(payload) - gradient)
print(f"{gradient.nbytes:,} bytes become {payload.nbytes:,}")
print(f"off by {error.mean():.4f} in the mean; within the bound: {bool((error <= tree.error_bound(gradient)).all())}")

# %% [markdown]
# ## Two runs of two ranks
#
# A config says what to train, and a script trains it twice, without and with the codec. `torchrun` starts the script as
# two ranks. Both end each step with the same weights, to the last bit.

# %%
CONFIG = """
epochs = 3

[data]
source = "photos"
size = 64
scales = [72]
batch_size = 8
eval_fraction = 0.25

[model]
name = "small-cnn"

[sync]
strategy = "butterfly"

[report]
tensorboard = false
progress = false
log_every = 1
"""
SCRIPT = """
import torch.distributed as dist

from augpipe.trainer.config import load_config
from augpipe.trainer.loop import run

dist.init_process_group("gloo")  # both runs use it
run(load_config("run.toml", ["out=runs/float32"]))
run(load_config("run.toml", ["out=runs/8-bit", "sync.codec=dynamic-tree"]))
dist.destroy_process_group()
"""
Path("run.toml").write_text(CONFIG)
Path("two_runs.py").write_text(SCRIPT)
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
subprocess.run([*torchrun, "two_runs.py"], check=True)

# %% [markdown]
# ## The bytes
#
# Every byte is counted. A float32 number takes 4 bytes; a code takes 1, and a block of 256 codes 4 more for its scale.

# %%
for name in ("float32", "8-bit"):
    with open(f"runs/{name}/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    sent = [float(row["sent_mb"]) for row in rows if row["sent_mb"]]
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    print(f"{name}: {sent[-1]:.2f} MB sent a step, loss {losses[0]:.2f} to {losses[-1]:.2f}")

# %% [markdown]
# In a script of your own, the same exchange is one line: see
# [a hook for DistributedDataParallel](../sync.md#in-a-ddp-trainer-two-lines).
