"""The compact release whose noise is its secret matrix, and the floor that it needs."""
