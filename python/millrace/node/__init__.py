"""The node agent's parts: where tools work, what they read, how they are started. Knows no other node."""
