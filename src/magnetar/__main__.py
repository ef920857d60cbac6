"""`python -m magnetar`: the command line, for users who start it by its interpreter."""

from magnetar.cli.main import main

main()
