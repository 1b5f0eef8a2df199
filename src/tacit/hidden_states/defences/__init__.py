"""What is often stored for want of better: fewer numbers, product codes, a secret rotation."""
