"""The way of a batch: `batches.stages_of` lists its stages, a module each."""
