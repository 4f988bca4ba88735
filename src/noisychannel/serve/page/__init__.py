"""The files of the page at /, put together by ``serve.pages``."""
