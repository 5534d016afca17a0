"""Values and small helpers that every other folder may know: errors, jobs, tools, tasks, formats, words."""
