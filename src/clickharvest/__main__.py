"""`python -m clickharvest` is `clickharvest`."""

from clickharvest.commands.app import main

main()
