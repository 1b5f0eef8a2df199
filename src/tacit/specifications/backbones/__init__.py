"""Public networks on which every specification is a change of the same parameters."""
