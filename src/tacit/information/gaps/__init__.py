"""How far the Gaussian bound is above the true information."""
