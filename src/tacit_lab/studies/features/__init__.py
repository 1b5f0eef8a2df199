"""What the study of quotients is made of."""
