"""Looks at runs while they last, from their run directories alone, and shows them."""
