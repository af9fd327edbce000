"""`python -m rn50_advisor`."""

from rn50_advisor.entry import main

main()
