"""What this machine is: CPU, kernel, privileges, energy sources."""
