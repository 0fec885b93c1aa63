__version__: str
TORCH_VERSION: str
