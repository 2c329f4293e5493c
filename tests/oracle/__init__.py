"""An independent, slow and plain reading of docs/model.md, against which the package is tested."""
