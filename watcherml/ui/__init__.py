"""The local web UI: a store's evidence and audit trail in a browser. Starlette, uvicorn and Jinja2 (extra ``ui``)."""
