"""From a recipe and sample ids to plans, and from plans to the table of the fused kernel."""
