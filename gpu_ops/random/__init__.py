"""Random words and permutations as pure functions of a seed and a counter."""
