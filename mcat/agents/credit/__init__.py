"""Credit: which steps earned a payment that came late."""
