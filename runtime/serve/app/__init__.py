"""The ASGI application: routes, status endpoints, the OpenAPI document, and the process."""
