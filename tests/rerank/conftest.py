from tests.llm.conftest import make_chat, server

__all__ = ["make_chat", "server"]
