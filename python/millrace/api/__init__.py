"""Millrace for Python programs: what they call, and how they are called record by record."""
