"""Do the estimates of trust come true? What `mcat calibrate` writes."""
