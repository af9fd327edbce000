"""Tables of hardware performance measured elsewhere, never on the machine that is judged with them."""
