"""`python -m sqlstream`."""

from sqlstream.cli import main

if __name__ == "__main__":
    main()
