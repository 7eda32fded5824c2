"""Known exports of click logs, one module each."""
