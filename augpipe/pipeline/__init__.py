"""The way of a batch: `stages.stages_of` lists its stages, a module each."""
