"""Where a change of a state costs, and where prompts differ."""
