"""Token by token, from a released trajectory of states."""
