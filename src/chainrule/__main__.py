"""``python -m chainrule``: the command line."""

from chainrule.cli import main

if __name__ == "__main__":
    main()
