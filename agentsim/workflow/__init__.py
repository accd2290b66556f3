"""What the task is: schema, file, executable form. Knows no hardware."""
