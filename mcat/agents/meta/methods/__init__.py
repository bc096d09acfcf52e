"""Methods of meta-training other than MCAT, and the list of all."""
