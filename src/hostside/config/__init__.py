"""hostside.toml (host-owned) and WORKFLOW.md (repository-owned), parsed once into frozen settings (D16)."""
