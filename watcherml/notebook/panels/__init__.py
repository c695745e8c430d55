"""What a notebook shows: every panel is text, HTML, and a live view where there is a kernel."""
