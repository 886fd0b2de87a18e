"""One module per selector; each is a frozen dataclass that `conf/selector/<name>.yaml` names."""
