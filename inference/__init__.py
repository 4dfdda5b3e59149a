"""Models behind protocols: embedders, and the recogniser of names."""
