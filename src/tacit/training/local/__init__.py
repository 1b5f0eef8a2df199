"""Local steps of a black-box optimiser, on the real batch and on what every reference keeps."""
