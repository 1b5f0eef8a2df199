"""Privacy profiles and what is done with them: composed, amplified, calibrated."""
