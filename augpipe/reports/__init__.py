"""What all reports are made of: pages of HTML, figures by matplotlib, tables, and the bar while they are made."""
