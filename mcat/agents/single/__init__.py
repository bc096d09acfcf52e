"""Training a policy for a single task."""
