"""The keyword index on an OpenSearch server."""
