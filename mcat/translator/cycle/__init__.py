"""The baseline of Zhang et al. (2020): correspondence by cycle consistency."""
