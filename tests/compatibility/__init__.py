"""What a former release has written is read as it was."""
