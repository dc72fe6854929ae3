"""The commands of the command line, one module per subject; each has ``register(app)``."""
