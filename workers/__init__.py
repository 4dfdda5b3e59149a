"""Who runs the projectors: the loop in threads, and its sweep."""
