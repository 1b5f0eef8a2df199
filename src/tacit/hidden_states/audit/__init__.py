"""Every mechanism measured on one layer, and one recommended."""
