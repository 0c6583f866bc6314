"""The modules of the steps. A step never changes after its release."""
