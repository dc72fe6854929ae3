"""The script ``chainrule``, and ``python -m chainrule``: the command line."""

from chainrule import starting


def main() -> None:
    """Run the command line; a Ctrl-C before it begins, or after it has ended, is one line."""
    with starting.guarded():
        from chainrule.cli import main as run
    try:
        run()
    finally:
        starting.guard()


if __name__ == "__main__":
    main()
