"""docs/explanation/reproductions.md, written from the results of the experiments."""
