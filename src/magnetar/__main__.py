"""`python -m magnetar`: the command line, for whoever starts it by its interpreter."""

from magnetar.cli.main import main

main()
