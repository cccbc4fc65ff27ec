"""OpenAI's formats: chats, texts, embeddings and responses, with llama-server's additions."""
