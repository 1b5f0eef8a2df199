"""What the hidden-state experiments share: compact rows, equal-KL comparison, verdicts, page."""
