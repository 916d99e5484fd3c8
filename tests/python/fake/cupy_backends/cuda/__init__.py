"""Of CUDA."""
