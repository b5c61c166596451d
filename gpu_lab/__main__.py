"""`python3 -m gpu_lab COMMAND`."""

import sys

from gpu_lab.command_line import main

if __name__ == "__main__":
    sys.exit(main())
