"""Order, destinations and writing of the outputs, and checks that they are complete."""
