"""What the driver shims cost an application, call by call."""
