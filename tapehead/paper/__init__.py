"""What belongs to the paper: its tables as presets."""
