"""What papers print, and what comes of it here."""
