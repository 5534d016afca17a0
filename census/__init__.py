"""What programs do when their input is cut: measured, for many programs, and kept true."""
