"""What other libraries' transforms do, next to what an import makes of them."""
