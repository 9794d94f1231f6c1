"""`python -m sqlstream`."""

from sqlstream.cli.main import main

if __name__ == "__main__":
    main()
