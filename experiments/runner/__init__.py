"""What every experiment needs: runs, where they are kept, how they are measured, judged and published."""
