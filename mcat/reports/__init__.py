"""What people read: one folder per report, and the drawing and tables they share."""
