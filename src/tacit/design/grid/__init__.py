"""Discrete Gaussian noise on a grid."""
