"""What all reports are made of: pages of HTML, figures by matplotlib, and tables."""
