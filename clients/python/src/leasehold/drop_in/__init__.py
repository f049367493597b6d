"""Classes that stand in for those of other packages, one module for each package."""
