"""What the pages of the training experiments share."""
