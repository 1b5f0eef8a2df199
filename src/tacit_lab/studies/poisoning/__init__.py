"""What the poisoning experiment says beside the paper's tables."""
