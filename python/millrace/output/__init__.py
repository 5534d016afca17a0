"""Order and places of the output: what is written where, and when it is whole."""
