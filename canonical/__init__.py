"""The truth: records, versions, mutations, conversations and the log that announces them."""
