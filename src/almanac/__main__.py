"""`python -m almanac` is `almanac`."""

from almanac.cli import main

if __name__ == "__main__":
    main()
