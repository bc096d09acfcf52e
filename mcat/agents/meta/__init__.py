"""Meta-training: one policy for all tasks of a family (the paper's Algorithm 1)."""
