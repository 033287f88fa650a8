"""Programs behind the Open Inference Protocol v2 over HTTP, as an ASGI application: `app(models)`.

`uvicorn` or any other ASGI server runs it: it has no authentication and opens no port itself. Needs NumPy
alone.
"""

from pteron.integrations.oip.application import App, app

__all__ = ["App", "app"]
