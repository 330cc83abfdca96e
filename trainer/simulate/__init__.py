"""What a cluster would do: a virtual clock, nodes and links."""
