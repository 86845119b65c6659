"""Where voices and dialogs are kept."""
