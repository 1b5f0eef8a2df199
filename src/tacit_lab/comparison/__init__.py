"""The promises side by side: what each hides, what its noise costs, what attackers reach."""
