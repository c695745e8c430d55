"""The same facts as text, HTML, Markdown and JSON. Takes values; knows no store, no process, no clock, no flags."""
