"""What is shared by the experiments on architectures and regularisers."""
