"""What every floor stands on: checks, randomness, numbers, files, threads."""
