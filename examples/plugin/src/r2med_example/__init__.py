"""A plug-in for r2med: one retriever, one reranker, one expander, each in the smallest form that r2med takes."""
