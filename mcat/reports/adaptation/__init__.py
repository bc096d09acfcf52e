"""What an adaptation earns, beside what else could have been done: report.html."""
