"""Every guarantee is a true bound: certified >= true, checked against independent oracles."""
