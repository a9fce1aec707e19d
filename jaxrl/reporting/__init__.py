"""Pages that tell what a run did, and how several compare; nothing here needs JAX."""
