"""What lies beyond the paper: departures from its assumptions, and a real log."""
