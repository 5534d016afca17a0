//! Cuts inputs into records without ever changing a byte.
