"""Tables of what hardware has been measured to reach elsewhere: never by the machine that is judged with them."""
